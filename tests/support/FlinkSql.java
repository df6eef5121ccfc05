import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Executes the statements of standard input, each ended by ";\n", on a cluster of its own in this
 * process, and prints the changelog of the last one: the kind of change and the values, between tabs;
 * NULL is \N, bytes are hexadecimal digits. */
public class FlinkSql {
    public static void main(String[] args) throws Exception {
        TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        flink.getConfig().set("parallelism.default", "1");
        flink.getConfig().set("table.local-time-zone", "UTC");
        String[] statements = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split(";\n");
        for (int i = 0; i < statements.length - 1; i++) {
            flink.executeSql(statements[i]);
        }
        try (CloseableIterator<Row> rows = flink.executeSql(statements[statements.length - 1]).collect()) {
            while (rows.hasNext()) {
                print(rows.next());
            }
        }
        System.exit(0);
    }

    private static void print(Row row) {
        StringJoiner line = new StringJoiner("\t");
        line.add(row.getKind().shortString());
        for (int i = 0; i < row.getArity(); i++) {
            Object value = row.getField(i);
            String text = value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : String.valueOf(value);
            line.add(value == null ? "\\N" : text);
        }
        System.out.println(line);
    }
}
