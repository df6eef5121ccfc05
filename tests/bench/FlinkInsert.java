import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Executes SQL statements on a cluster of its own in this process, two tasks at once, and waits for the end of the job
 * that the last one starts: MODE STATEMENT..., where the mode is `streaming` or `batch`. */
public class FlinkInsert {
    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "2");
        // the default scheduler of batches chooses the number of tasks itself, here one
        settings.setString("jobmanager.scheduler", "Default");
        // a stream ends with a checkpoint
        settings.setString("execution.checkpointing.interval", "5s");
        settings.setString("execution.runtime-mode", args[0]);
        TableEnvironment flink =
            TableEnvironment.create(EnvironmentSettings.newInstance().withConfiguration(settings).build());
        TableResult last = null;
        for (int i = 1; i < args.length; i++) {
            last = flink.executeSql(args[i]);
        }
        last.await();
        System.exit(0);
    }
}
