import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/** Iceberg's REST protocol by Iceberg's own handlers over a catalog that it has: PORT NAME=VALUE..., on loopback or on the
 * address of this machine that the system property `address` names.
 *
 * GET /fault?FAULT decides over the next request that changes a table: before (503, nothing is done), after (503, it is
 * done), cut (it is done, the answer ends early), conflict (409, nothing is done), hang (it is done, and the answer comes
 * after GET /fault?release), hold (it is done after GET /fault?release; GET /held is answered by 204 once it is there, and by 404 before).
 * GET /fault?forget=NAMESPACE/TABLE removes a table from the catalog and leaves its files.
 * GET /vend?NAME=VALUE&... are the settings that whoever loads a table and asks for credentials is given from then on. */
public class IcebergRestServer {
    private static final AtomicReference<String> FAULT = new AtomicReference<>("");
    private static final AtomicReference<CountDownLatch> HANGING = new AtomicReference<>(new CountDownLatch(1));
    private static final AtomicBoolean HELD = new AtomicBoolean();
    private static final AtomicReference<Map<String, String>> VENDED = new AtomicReference<>(Map.of());
    private static final ObjectMapper JSON = new ObjectMapper();
    private static Catalog catalog;
    private static SupportsNamespaces namespaces;

    private record Reply(int status, Object body) {}

    private static class Unavailable extends RuntimeException {
        Unavailable(String message) {
            super(message);
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> properties = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        Configuration hadoop = new Configuration();
        hadoop.set("fs.file.impl", "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem");
        catalog = CatalogUtil.buildIcebergCatalog("cdcsync", properties, hadoop);
        namespaces = (SupportsNamespaces) catalog;
        JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
        JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
        JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
        RESTSerializers.registerAll(JSON);
        HttpServer server = HttpServer.create(
            new InetSocketAddress(System.getProperty("address", "127.0.0.1"), Integer.parseInt(args[0])), 50);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", IcebergRestServer::serve);
        server.start();
    }

    private static void serve(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        String fault = changesTable(exchange) ? FAULT.getAndSet("") : "";
        Reply reply;
        try {
            if (fault.equals("before")) {
                throw new Unavailable("the request was not carried out");
            }
            if (fault.equals("conflict")) {
                throw new CommitFailedException("another commit came first");
            }
            if (fault.equals("hold")) {
                CountDownLatch released = HANGING.get();
                HELD.set(true);
                released.await();
            }
            reply = answer(exchange, exchange.getRequestMethod(), body);
            if (fault.equals("after")) {
                throw new Unavailable("the request was carried out");
            }
            if (fault.equals("hang")) {
                HANGING.get().await();
            }
        } catch (Exception e) {
            int status = status(e);
            reply = new Reply(status, ErrorResponse.builder().responseCode(status).withType(e.getClass().getSimpleName())
                .withMessage(String.valueOf(e.getMessage())).build());
        }
        send(exchange, reply, fault.equals("cut"));
    }

    private static boolean changesTable(HttpExchange exchange) {
        return exchange.getRequestMethod().equals("POST") && exchange.getRequestURI().getPath().contains("/tables");
    }

    private static void send(HttpExchange exchange, Reply reply, boolean cut) throws IOException {
        byte[] body = reply.body == null ? new byte[0] : JSON.writeValueAsBytes(reply.body);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        boolean none = body.length == 0 || exchange.getRequestMethod().equals("HEAD");
        exchange.sendResponseHeaders(none && reply.status == 200 ? 204 : reply.status, none ? -1 : body.length);
        if (!none) {
            exchange.getResponseBody().write(body, 0, cut ? body.length / 2 : body.length);
            exchange.getResponseBody().flush();
        }
        exchange.close();
    }

    private static int status(Exception e) {
        if (e instanceof NoSuchTableException || e instanceof NoSuchNamespaceException) {
            return 404;
        }
        if (e instanceof AlreadyExistsException || e instanceof CommitFailedException) {
            return 409;
        }
        if (e instanceof ValidationException || e instanceof IllegalArgumentException) {
            return 400;
        }
        if (e instanceof Unavailable) {
            return 503;
        }
        e.printStackTrace();
        return 500;
    }

    private static Reply answer(HttpExchange exchange, String method, byte[] body) throws Exception {
        String[] path = exchange.getRequestURI().getRawPath().substring(1).split("/");
        if (path[0].equals("fault")) {
            fault(exchange.getRequestURI().getQuery());
            return new Reply(204, null);
        }
        if (path[0].equals("held")) {
            return new Reply(HELD.get() ? 204 : 404, null);
        }
        if (path[0].equals("vend")) {
            VENDED.set(pairs(exchange.getRequestURI().getRawQuery().split("&")));
            return new Reply(204, null);
        }
        if (path[1].equals("config")) {
            return new Reply(200, ConfigResponse.builder().build());
        }
        if (path.length == 2) {
            return new Reply(200, method.equals("GET")
                ? CatalogHandlers.listNamespaces(namespaces, Namespace.empty())
                : CatalogHandlers.createNamespace(namespaces, JSON.readValue(body, CreateNamespaceRequest.class)));
        }
        Namespace namespace = Namespace.of(decoded(path[2]).split("\u001f"));
        if (path.length == 3) {
            return new Reply(200, CatalogHandlers.loadNamespace(namespaces, namespace));
        }
        if (path.length == 4) {
            return new Reply(200, method.equals("GET")
                ? CatalogHandlers.listTables(catalog, namespace)
                : create(namespace, JSON.readValue(body, CreateTableRequest.class)));
        }
        Reply reply = table(method, TableIdentifier.of(namespace, decoded(path[4])), path.length > 5, body);
        boolean asked = "vended-credentials".equals(exchange.getRequestHeaders().getFirst("X-Iceberg-Access-Delegation"));
        if (!asked || !method.equals("GET")) {
            return reply;
        }
        LoadTableResponse loaded = (LoadTableResponse) reply.body;
        return new Reply(200, LoadTableResponse.builder().withTableMetadata(loaded.tableMetadata()).addAllConfig(VENDED.get()).build());
    }

    private static Map<String, String> pairs(String[] given) {
        Map<String, String> found = new HashMap<>();
        for (String one : given) {
            String[] parts = one.split("=", 2);
            found.put(parts[0], decoded(parts[1]));
        }
        return found;
    }

    private static Object create(Namespace namespace, CreateTableRequest request) {
        return request.stageCreate()
            ? CatalogHandlers.stageTableCreate(catalog, namespace, request)
            : CatalogHandlers.createTable(catalog, namespace, request);
    }

    private static Reply table(String method, TableIdentifier name, boolean metrics, byte[] body) throws Exception {
        if (metrics) {
            return new Reply(204, null);
        }
        switch (method) {
            case "HEAD":
                CatalogHandlers.tableExists(catalog, name);
                return new Reply(204, null);
            case "GET":
                return new Reply(200, CatalogHandlers.loadTable(catalog, name, RESTCatalogProperties.SnapshotMode.ALL));
            case "DELETE":
                CatalogHandlers.dropTable(catalog, name);
                return new Reply(204, null);
            default:
                return new Reply(200, CatalogHandlers.updateTable(catalog, name, JSON.readValue(body, UpdateTableRequest.class)));
        }
    }

    private static void fault(String fault) {
        if (fault.equals("release")) {
            HANGING.getAndSet(new CountDownLatch(1)).countDown();
        } else if (fault.startsWith("forget=")) {
            String[] name = fault.substring("forget=".length()).split("/");
            catalog.dropTable(TableIdentifier.of(Namespace.of(name[0]), name[1]), false);
        } else {
            HELD.set(false);
            FAULT.set(fault);
        }
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }
}
