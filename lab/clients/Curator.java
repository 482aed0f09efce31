/* Clients with Curator's InterProcessMutex. They obey the orders of lab/client.py, and note the same
 * events:
 *
 *     Curator SERVERS LOCK SESSION_MS WITNESS_PORT {NAME ORDERS EVENTS}...
 *
 * ORDERS and EVENTS are files. Each client has a thread of its own, since the lock belongs to its thread.
 * It does as Curator's manual says: it listens for the state of its connection, and works only while
 * that is not in doubt. */
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

public class Curator extends Thread {
    private final CuratorFramework curator;
    private final InterProcessMutex mutex;
    private final BufferedReader orders, fromWitness;
    private final PrintStream events, toWitness;
    private volatile boolean isConnected, isOver; // the connection; the session that the lock belonged to
    private int grants;

    Curator(String[] common, String name, String orders, String events) throws IOException {
        super(name);
        curator = CuratorFrameworkFactory.newClient(common[0], Integer.parseInt(common[2]), 30000,
                                                    new RetryForever(100));
        curator.getConnectionStateListenable().addListener((client, state) -> onChange(state));
        mutex = new InterProcessMutex(curator, common[1]);
        this.orders = new BufferedReader(new FileReader(orders));
        this.events = new PrintStream(events);
        Socket witness = new Socket("127.0.0.1", Integer.parseInt(common[3]));
        toWitness = new PrintStream(witness.getOutputStream(), true);
        fromWitness = new BufferedReader(new InputStreamReader(witness.getInputStream()));
    }

    void onChange(ConnectionState state) {
        isConnected = state.isConnected();
        isOver |= state == ConnectionState.LOST;
    }

    void say(String words) {
        events.println(System.nanoTime() + " " + words); // CLOCK_MONOTONIC
    }

    void lock() throws Exception {
        say("asked");
        mutex.acquire();
        isOver = false;
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
            stopProcess();
        toWitness.println("write " + getName() + " " + grants + " -");
        say("wrote " + fromWitness.readLine());
    }

    /* Returns when somebody has continued it. */
    static void stopProcess() throws Exception {
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

    public void run() {
        try {
            curator.start();
            curator.blockUntilConnected();
            say("ready");
            for (String order; (order = orders.readLine()) != null && !order.equals("quit");)
                obey(order);
        } catch (IOException | InterruptedException e) {
            e.printStackTrace();
        }
    }

    public static void main(String[] words) throws Exception {
        Curator first = new Curator(words, words[4], words[5], words[6]);
        for (int i = 7; i < words.length; i += 3)
            new Curator(words, words[i], words[i + 1], words[i + 2]).start();
        first.start();
        first.join();
        System.exit(0);
    }
}
