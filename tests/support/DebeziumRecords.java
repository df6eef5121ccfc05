import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Avro;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import io.debezium.engine.format.SerializationFormat;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;

/** Prints the records of Debezium's engine until that of the last table: SETTINGS START LAST [avro].
 *
 * A line is the table, and in base64 the key, the value (`-`: there is none), the name and the value of each header.
 * SETTINGS is a file of the connector's properties. START is a position as Debezium keeps it, or empty: it begins with
 * a snapshot then. Records are JSON, or Avro for a schema registry. */
public class DebeziumRecords {
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (var text = Files.newBufferedReader(Path.of(args[0]))) {
            settings.load(text);
        }
        if (!args[1].isEmpty()) {
            begin(Path.of(settings.getProperty("offset.storage.file.filename")), settings.getProperty("name"),
                settings.getProperty("topic.prefix"), args[1]);
        }
        Executors.newSingleThreadExecutor().execute(args.length > 3
            ? engine(KeyValueHeaderChangeEventFormat.of(Avro.class, Avro.class, Json.class), settings, args[2])
            : engine(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class), settings, args[2]));
        DONE.await();
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }

    private static <T extends SerializationFormat<F>, F> Runnable engine(
            KeyValueHeaderChangeEventFormat<T, T, Json> format, Properties settings, String last) {
        return DebeziumEngine.create(format).using(settings)
            .notifying(record -> print(record, last)).using(DebeziumRecords::ended).build();
    }

    private static void print(ChangeEvent<?, ?> record, String last) {
        String table = record.destination().substring(record.destination().lastIndexOf('.') + 1);
        if (table.equals(last)) {
            DONE.countDown();
        } else if (record.key() != null && DONE.getCount() > 0) {
            OUT.print(table + " " + encoded(record.key()) + " " + encoded(record.value()));
            for (Header<?> header : record.headers()) {
                OUT.print(" " + encoded(header.getKey()) + " " + encoded(header.getValue()));
            }
            OUT.println();
        }
    }

    private static String encoded(Object data) {
        if (data == null) {
            return "-";
        }
        byte[] bytes = data instanceof byte[] raw ? raw : ((String) data).getBytes(StandardCharsets.UTF_8);
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static void ended(boolean success, String message, Throwable error) {
        if (!success) {
            System.err.println(message + " " + error);
            System.exit(1);
        }
    }

    /** Writes the position in the form of Kafka Connect's file of offsets. */
    private static void begin(Path file, String name, String prefix, String position) throws Exception {
        HashMap<byte[], byte[]> offsets = new HashMap<>();
        String key = "[\"" + name + "\",{\"server\":\"" + prefix + "\"}]";
        offsets.put(key.getBytes(StandardCharsets.UTF_8), position.getBytes(StandardCharsets.UTF_8));
        try (ObjectOutputStream stream = new ObjectOutputStream(Files.newOutputStream(file))) {
            stream.writeObject(offsets);
        }
    }
}
