import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Executes the statements of standard input, one a line, on a cluster of its own in this process, and prints `done`
 * when the job of each has ended. */
public class FlinkChanges {
    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "1");
        // changes of one key come once in a batch
        settings.setString("table.exec.sink.upsert-materialize", "NONE");
        TableEnvironment flink = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        BufferedReader statements = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String statement = statements.readLine(); statement != null; statement = statements.readLine()) {
            flink.executeSql(statement).await();
            System.out.println("done");
        }
        System.exit(0);
    }
}
