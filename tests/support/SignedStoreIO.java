import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;

/** Whole small files of a bucket, by the property names of Iceberg's S3FileIO: a catalog's metadata. Its own client of
 * 60 lines stands for Amazon's, which has 69 MB. */
public class SignedStoreIO implements FileIO {
    private static final String UNSIGNED = "UNSIGNED-PAYLOAD";
    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private Map<String, String> properties = Map.of();

    @Override
    public void initialize(Map<String, String> given) {
        properties = Map.copyOf(given);
    }

    @Override
    public Map<String, String> properties() {
        return properties;
    }

    @Override
    public InputFile newInputFile(String path) {
        HttpResponse<byte[]> answer = ask("GET", path, HttpRequest.BodyPublishers.noBody());
        if (answer.statusCode() == 404) {
            throw new NotFoundException("no object %s", path);
        }
        return new InMemoryInputFile(path, answer.body());
    }

    @Override
    public OutputFile newOutputFile(String path) {
        return new StoredFile(path);
    }

    @Override
    public void deleteFile(String path) {
        ask("DELETE", path, HttpRequest.BodyPublishers.noBody());
    }

    private HttpResponse<byte[]> ask(String method, String path, HttpRequest.BodyPublisher body) {
        try {
            URI place = URI.create(properties.get("s3.endpoint") + "/" + path.substring(path.indexOf("://") + 3));
            String time = ZonedDateTime.now(ZoneOffset.UTC).format(DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'"));
            HttpRequest request = HttpRequest.newBuilder(place).method(method, body).header("x-amz-date", time)
                .header("x-amz-content-sha256", UNSIGNED).header("Authorization", authorization(method, place, time)).build();
            HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() >= 300 && answer.statusCode() != 404) {
                throw new IOException(method + " " + place + ": " + answer.statusCode() + " " + new String(answer.body(), StandardCharsets.UTF_8));
            }
            return answer;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (GeneralSecurityException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Source: Amazon's documentation of Signature Version 4. */
    private String authorization(String method, URI place, String time) throws GeneralSecurityException {
        String names = "host;x-amz-content-sha256;x-amz-date";
        String canonical = String.join("\n", method, place.getRawPath(), "", "host:" + place.getAuthority(),
            "x-amz-content-sha256:" + UNSIGNED, "x-amz-date:" + time, "", names, UNSIGNED);
        String[] parts = {time.substring(0, 8), properties.get("client.region"), "s3", "aws4_request"};
        String scope = String.join("/", parts);
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(canonical.getBytes(StandardCharsets.UTF_8));
        byte[] key = ("AWS4" + properties.get("s3.secret-access-key")).getBytes(StandardCharsets.UTF_8);
        for (String part : parts) {
            key = hmac(key, part);
        }
        String signature = HexFormat.of().formatHex(hmac(key, String.join("\n", "AWS4-HMAC-SHA256", time, scope, HexFormat.of().formatHex(hash))));
        return "AWS4-HMAC-SHA256 Credential=" + properties.get("s3.access-key-id") + "/" + scope + ", SignedHeaders=" + names
            + ", Signature=" + signature;
    }

    private static byte[] hmac(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private class StoredFile implements OutputFile {
        private final String path;

        StoredFile(String path) {
            this.path = path;
        }

        @Override
        public PositionOutputStream create() {
            return createOrOverwrite();
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
            ByteArrayOutputStream content = new ByteArrayOutputStream();
            return new PositionOutputStream() {
                @Override
                public long getPos() {
                    return content.size();
                }

                @Override
                public void write(int one) {
                    content.write(one);
                }

                @Override
                public void close() {
                    ask("PUT", path, HttpRequest.BodyPublishers.ofByteArray(content.toByteArray()));
                }
            };
        }

        @Override
        public String location() {
            return path;
        }

        @Override
        public InputFile toInputFile() {
            return newInputFile(path);
        }
    }
}
