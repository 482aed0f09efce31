/* A client with Curator's InterProcessMutex. It obeys the orders of lab/client.py, and notes the same
 * events: Curator SERVERS LOCK SESSION_MS NAME WITNESS_PORT.
 *
 * It follows Curator's manual: it listens for the state of the connection, and works only while that
 * is not in doubt. */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

public class Curator {
    private final CuratorFramework curator;
    private final InterProcessMutex mutex;
    private final String name;
    private final PrintStream toWitness;
    private final BufferedReader fromWitness;
    private volatile boolean isConnected = true;
    private volatile boolean isOver; // a session, since the lock was granted
    private int grants;

    Curator(String servers, String lock, int sessionMs, String name, int witnessPort) throws Exception {
        curator = CuratorFrameworkFactory.newClient(servers, sessionMs, 30000, new RetryForever(100));
        curator.getConnectionStateListenable().addListener((client, state) -> onChange(state));
        mutex = new InterProcessMutex(curator, lock);
        this.name = name;
        Socket witness = new Socket("127.0.0.1", witnessPort);
        toWitness = new PrintStream(witness.getOutputStream(), true);
        fromWitness = new BufferedReader(new InputStreamReader(witness.getInputStream()));
    }

    void onChange(ConnectionState state) {
        isConnected = state.isConnected();
        isOver |= state == ConnectionState.LOST;
    }

    static void say(String words) {
        System.out.println(System.nanoTime() + " " + words); // CLOCK_MONOTONIC
    }

    void lock() throws Exception {
        say("asked");
        isOver = false;
        mutex.acquire();
        grants++;
        say("locked -");
    }

    void unlock() throws Exception {
        say("unlocking");
        mutex.release();
        say("unlocked");
    }

    void write(boolean isPausing) throws Exception {
        if (!isConnected || isOver) {
            say("lost");
            return;
        }
        if (isPausing)
            stopMyself();
        toWitness.println("write " + name + " " + grants + " -");
        say("wrote " + fromWitness.readLine());
    }

    /* Returns when somebody has continued this process. */
    static void stopMyself() throws Exception {
        String stop = "kill -STOP $PPID; until grep -q '^State:.T' /proc/$PPID/status; do sleep 0.01; done";
        new ProcessBuilder("sh", "-c", stop).start().waitFor();
    }

    void obey(String order) {
        try {
            switch (order) {
            case "lock" -> lock();
            case "unlock" -> unlock();
            default -> write(order.equals("write pausing"));
            }
        } catch (Exception e) {
            say("failed " + order + " " + e.toString().replace('\n', ' '));
        }
    }

    public static void main(String[] words) throws Exception {
        Curator client = new Curator(words[0], words[1], Integer.parseInt(words[2]), words[3],
                                     Integer.parseInt(words[4]));
        client.curator.start();
        client.curator.blockUntilConnected();
        say("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order; (order = orders.readLine()) != null && !order.equals("quit");)
            client.obey(order);
        System.exit(0);
    }
}
