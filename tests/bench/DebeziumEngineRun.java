import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.engine.format.Json;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.source.SourceRecord;

/** Debezium's engine from a place in the binlog, until it has delivered `changes` records of the table:
 * PORT TABLE FILE OFFSET GTIDS CHANGES FOLDER [BROKERS TOPIC].
 *
 * Into a topic its records are JSON without schemas; a batch is marked as done when the brokers have acknowledged it.
 * Without a topic they are Kafka Connect's records, which are counted and go nowhere. */
public class DebeziumEngineRun {
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static long wanted, seen;

    public static void main(String[] args) throws Exception {
        String table = args[1];
        wanted = Long.parseLong(args[5]);
        Properties settings = settings(args, Path.of(args[6]));
        Executors.newSingleThreadExecutor()
            .execute(args.length > 7 ? intoTopic(table, settings, producer(args[7]), args[8]) : counted(table, settings));
        DONE.await();
        System.out.println(seen);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static DebeziumEngine<RecordChangeEvent<SourceRecord>> counted(String table, Properties settings) {
        return DebeziumEngine.create(ChangeEventFormat.of(Connect.class)).using(settings).notifying((records, committer) -> {
            long changes = 0;
            for (RecordChangeEvent<SourceRecord> event : records) {
                SourceRecord record = event.record();
                changes += record.topic().endsWith(table) && record.value() != null ? 1 : 0;
            }
            finish(records, committer, changes);
        }).using(DebeziumEngineRun::ended).build();
    }

    private static DebeziumEngine<ChangeEvent<String, String>> intoTopic(
        String table, Properties settings, KafkaProducer<String, String> producer, String topic) {
        return DebeziumEngine.create(Json.class).using(settings).notifying((records, committer) -> {
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
            finish(records, committer, changes);
        }).using(DebeziumEngineRun::ended).build();
    }

    private static <R> void finish(List<R> records, DebeziumEngine.RecordCommitter<R> committer, long changes)
        throws InterruptedException {
        for (R record : records) {
            committer.markProcessed(record);
        }
        committer.markBatchFinished();
        seen += changes;
        if (seen >= wanted) {
            DONE.countDown();
        }
    }

    private static void ended(boolean success, String message, Throwable error) {
        if (!success) {
            System.err.println(message + " " + error);
            System.exit(1);
        }
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
        Path offsets = Files.createTempFile(folder, "offsets-", "");
        write(offsets, args[2], Long.parseLong(args[3]), args[4]);
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
