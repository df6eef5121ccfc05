import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Debezium's engine from a place in the binlog into a Kafka topic, until `changes` records are acknowledged:
 * PORT TABLE FILE OFFSET BROKERS TOPIC CHANGES FOLDER GTIDS. Its records are JSON without schemas; a batch is marked
 * as done when the brokers have acknowledged it. */
public class DebeziumTopic {
    public static void main(String[] args) throws Exception {
        String table = args[1], topic = args[5];
        Path folder = Path.of(args[7]);
        long wanted = Long.parseLong(args[6]);
        KafkaProducer<String, String> producer = producer(args[4]);
        CountDownLatch done = new CountDownLatch(1);
        long[] seen = {0};
        Properties settings = settings(args, folder);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(settings)
            .notifying((records, committer) -> {
                Future<RecordMetadata> last = null;
                long changes = 0;
                for (ChangeEvent<String, String> record : records) {
                    if (record.destination().endsWith(table)) {
                        last = producer.send(new ProducerRecord<>(topic, record.key(), record.value()));
                        changes += record.value() == null ? 0 : 1;
                    }
                }
                producer.flush();
                try {
                    if (last != null) {
                        last.get();
                    }
                } catch (java.util.concurrent.ExecutionException error) {
                    throw new IllegalStateException(error);
                }
                for (ChangeEvent<String, String> record : records) {
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
                seen[0] += changes;
                if (seen[0] >= wanted) {
                    done.countDown();
                }
            })
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println(message + " " + error);
                    System.exit(1);
                }
            }).build();
        Executors.newSingleThreadExecutor().execute(engine);
        done.await();
        System.out.println(seen[0]);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<String, String> producer(String brokers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("compression.type", "lz4");
        settings.put("linger.ms", "5");
        settings.put("batch.size", String.valueOf(1 << 20));
        return new KafkaProducer<>(settings);
    }

    private static Properties settings(String[] args, Path folder) throws Exception {
        Properties settings = new Properties();
        Path offsets = folder.resolve("offsets-" + args[5]);
        write(offsets, args[2], Long.parseLong(args[3]), args[8]);
        settings.putAll(Map.ofEntries(
            Map.entry("name", "bench"), Map.entry("connector.class", "io.debezium.connector.mysql.MySqlConnector"),
            Map.entry("database.hostname", "127.0.0.1"), Map.entry("database.port", args[0]),
            Map.entry("database.user", Files.readString(folder.resolve("username"))),
            Map.entry("database.password", Files.readString(folder.resolve("password"))),
            Map.entry("database.server.id", "4000077"), Map.entry("database.ssl.mode", "disabled"),
            Map.entry("topic.prefix", "bench"), Map.entry("table.include.list", args[1]),
            Map.entry("snapshot.mode", "recovery"),
            Map.entry("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory"),
            Map.entry("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore"),
            Map.entry("offset.storage.file.filename", offsets.toString()), Map.entry("offset.flush.interval.ms", "60000"),
            Map.entry("converter.schemas.enable", "false"), Map.entry("key.converter.schemas.enable", "false"),
            Map.entry("value.converter.schemas.enable", "false")));
        return settings;
    }

    /** The form of Kafka Connect's file of offsets. */
    private static void write(Path file, String log, long offset, String gtids) throws Exception {
        HashMap<byte[], byte[]> found = new HashMap<>();
        String place = "{\"file\":\"" + log + "\",\"pos\":" + offset + ",\"gtids\":\"" + gtids + "\"}";
        byte[] value = place.getBytes(StandardCharsets.UTF_8);
        found.put("[\"bench\",{\"server\":\"bench\"}]".getBytes(StandardCharsets.UTF_8), value);
        try (ObjectOutputStream stream = new ObjectOutputStream(Files.newOutputStream(file))) {
            stream.writeObject(found);
        }
    }
}
