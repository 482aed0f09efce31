import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/* Curator's InterProcessMutex, for bench/zookeeper.c: CuratorPeer PORT. It reads lines "pairs THREADS MS" and "changes THREADS
 * MS", has threads take and release a lock for a while, each its own or all the same, and answers with pairs or changes of
 * holder in a second. */
public class CuratorPeer {
    static double measure(CuratorFramework client, boolean changes, int count, long ms) throws Exception {
        AtomicLong number = new AtomicLong();
        AtomicInteger last = new AtomicInteger(-1);
        Thread[] threads = new Thread[count];
        long began = System.nanoTime(), until = began + ms * 1000000;
        for (int i = 0; i < count; i++) {
            int index = i;
            threads[i] = new Thread(() -> {
                InterProcessMutex lock = new InterProcessMutex(client, changes ? "/curator/one" : "/curator/" + index);
                try {
                    while (System.nanoTime() < until) {
                        lock.acquire();
                        if (last.getAndSet(index) != index || !changes)
                            number.incrementAndGet();
                        lock.release();
                    }
                } catch (Exception problem) {
                    throw new RuntimeException(problem);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        return number.get() * 1e9 / (System.nanoTime() - began);
    }

    public static void main(String[] words) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient("127.0.0.1:" + words[0], 30000, 30000, new RetryForever(100));
        client.start();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] asked = lines.nextLine().split(" ");
            System.out.println(
                measure(client, asked[0].equals("changes"), Integer.parseInt(asked[1]), Long.parseLong(asked[2])));
        }
        client.close();
    }
}
