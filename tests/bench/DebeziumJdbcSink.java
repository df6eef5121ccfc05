import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** Debezium's JDBC sink task with records of its own connector's form, made in memory:
 * URL USER PASSWORD TABLE insert|upsert ROWS TURNS RECORDS_A_PUT TIMES.
 *
 * The rows and changes are those of `sql_changes.py`. No Kafka and no converter is in it. TIMES gets the milliseconds
 * of each put; the last word of the output is how many records were put. */
public class DebeziumJdbcSink {
    private static final String[] TEXTS = {"c_customer_id", "c_salutation", "c_first_name", "c_last_name",
        "c_preferred_cust_flag", "c_birth_country", "c_login", "c_email_address"};
    private static final String[] COLUMNS = {"c_customer_sk", "c_customer_id", "c_current_cdemo_sk", "c_current_hdemo_sk",
        "c_current_addr_sk", "c_first_shipto_date_sk", "c_first_sales_date_sk", "c_salutation", "c_first_name", "c_last_name",
        "c_preferred_cust_flag", "c_birth_day", "c_birth_month", "c_birth_year", "c_birth_country", "c_login",
        "c_email_address", "c_last_review_date_sk"};
    private static final Schema KEY = SchemaBuilder.struct().name("bench.shop.customer.Key").field("c_customer_sk", Schema.INT32_SCHEMA).build();
    private static final Schema ROW = rowSchema();
    private static final Schema SOURCE = SchemaBuilder.struct().name("io.debezium.connector.mysql.Source").optional()
        .field("db", Schema.STRING_SCHEMA).field("table", Schema.STRING_SCHEMA).build();
    private static final Schema ENVELOPE = SchemaBuilder.struct().name("bench.shop.customer.Envelope").version(1)
        .field("before", ROW).field("after", ROW).field("source", SOURCE).field("op", Schema.STRING_SCHEMA)
        .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();
    private static long offset;

    public static void main(String[] args) throws Exception {
        int rows = Integer.parseInt(args[5]), turns = Integer.parseInt(args[6]), most = Integer.parseInt(args[7]);
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        task.initialize((SinkTaskContext) Proxy.newProxyInstance(DebeziumJdbcSink.class.getClassLoader(),
            new Class<?>[] {SinkTaskContext.class}, (proxy, method, ignored) -> method.getName().equals("assignment") ? Set.of() : null));
        task.start(settings(args));
        task.open(List.of(new TopicPartition("customer", 0)));
        StringBuilder times = new StringBuilder();
        for (int turn = args[4].equals("insert") ? 0 : 1; turn <= turns; turn++) {
            for (int first = 1; first <= rows; first += most) {
                List<SinkRecord> records = new ArrayList<>(most);
                for (int k = first; k < Math.min(first + most, rows + 1); k++) {
                    records.add(record(k, turn));
                }
                long begun = System.nanoTime();
                task.put(records);
                times.append((System.nanoTime() - begun) / 1e6).append('\n');
                if (task.getLastProcessingException() != null) {
                    throw new IllegalStateException(task.getLastProcessingException());
                }
            }
        }
        Files.writeString(Path.of(args[8]), times);
        task.stop();
        System.out.println("\n" + offset);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Turn 0 inserts; each later one updates eight columns of all rows but one in a hundred, which it deletes. */
    private static SinkRecord record(int k, int turn) {
        Struct key = new Struct(KEY).put("c_customer_sk", k), envelope = new Struct(ENVELOPE);
        boolean deleted = turn > 0 && k % 100 == turn;
        envelope.put("op", turn == 0 ? "c" : deleted ? "d" : "u").put("ts_ms", 1L);
        envelope.put("source", new Struct(SOURCE).put("db", "shop").put("table", "customer"));
        if (turn > 0) {
            envelope.put("before", row(k, turn - 1));
        }
        if (!deleted) {
            envelope.put("after", row(k, turn));
        }
        return new SinkRecord("customer", 0, KEY, key, ENVELOPE, envelope, offset++, 1L, TimestampType.CREATE_TIME);
    }

    private static Struct row(int k, int turn) {
        Struct row = new Struct(ROW);
        String number = String.format("%08d", k);
        row.put("c_customer_sk", k).put("c_customer_id", "AAAAAAAA" + number).put("c_current_cdemo_sk", k % 1920800);
        row.put("c_current_hdemo_sk", k % 29 == 0 ? null : k % 7200).put("c_current_addr_sk", k % 50000 + turn);
        row.put("c_first_shipto_date_sk", 2449000 + k % 3000).put("c_first_sales_date_sk", 2449000 + k % 2900);
        row.put("c_salutation", k % 29 == 0 ? null : turn > 0 ? "Dr." : "Mrs.").put("c_first_name", turn > 0 ? "Ada" : "Zo\u00eb");
        row.put("c_last_name", "Garc\u00eda").put("c_preferred_cust_flag", k % 2 == 0 ? "Y" : "N");
        row.put("c_birth_day", 1 + (k + turn) % 28).put("c_birth_month", 1 + k % 12).put("c_birth_year", 1924 + (k + turn) % 69);
        row.put("c_birth_country", "UNITED STATES").put("c_login", turn > 0 ? "changed" : null);
        row.put("c_email_address", (turn > 0 ? "new" : "customer") + number + "@example.org");
        return row.put("c_last_review_date_sk", 2452283 + k % 365 + turn);
    }

    private static Schema rowSchema() {
        SchemaBuilder builder = SchemaBuilder.struct().name("bench.shop.customer.Value").optional();
        for (String name : COLUMNS) {
            boolean text = List.of(TEXTS).contains(name);
            Schema other = text ? Schema.OPTIONAL_STRING_SCHEMA : Schema.OPTIONAL_INT32_SCHEMA;
            builder.field(name, name.equals("c_customer_sk") ? Schema.INT32_SCHEMA : other);
        }
        return builder.build();
    }

    private static Map<String, String> settings(String[] args) {
        Map<String, String> settings = new HashMap<>();
        settings.put("connection.url", args[0]);
        settings.put("connection.username", args[1]);
        settings.put("connection.password", args[2]);
        settings.put("collection.name.format", args[3]);
        settings.put("insert.mode", args[4]);
        settings.put("delete.enabled", args[4].equals("upsert") ? "true" : "false");
        settings.put("primary.key.mode", "record_key");
        settings.put("schema.evolution", "none");
        settings.put("batch.size", args[7]);
        settings.put("topics", "customer");
        return settings;
    }
}
