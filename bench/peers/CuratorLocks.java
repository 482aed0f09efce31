import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/* Curator's InterProcessMutex, for bench/zookeeper.c: CuratorLocks PORT. See bench/process.h for what it reads and answers. */
public class CuratorLocks {
    static String measure(CuratorFramework client, boolean areChanges, int count, long ms) throws Exception {
        AtomicLong changes = new AtomicLong();
        AtomicInteger last = new AtomicInteger(-1);
        List<Long> times = new ArrayList<>();
        Thread[] threads = new Thread[count];
        long began = System.nanoTime(), until = began + ms * 1000000;
        for (int i = 0; i < count; i++) {
            int index = i;
            threads[i] = new Thread(() -> {
                InterProcessMutex lock = new InterProcessMutex(client, areChanges ? "/curator/one" : "/curator/" + index);
                List<Long> own = new ArrayList<>();
                try {
                    for (long now = 0; now < until;) {
                        long before = System.nanoTime();
                        lock.acquire();
                        if (last.getAndSet(index) != index)
                            changes.incrementAndGet();
                        lock.release();
                        now = System.nanoTime();
                        own.add((now - before) / 1000);
                    }
                } catch (Exception problem) {
                    throw new RuntimeException(problem);
                }
                synchronized (times) {
                    times.addAll(own);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        StringBuilder answer = new StringBuilder();
        answer.append((areChanges ? changes.get() : times.size()) * 1e9 / (System.nanoTime() - began));
        for (long us : times)
            answer.append(' ').append(us);
        return answer.toString();
    }

    public static void main(String[] words) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient("127.0.0.1:" + words[0], 30000, 30000, new RetryForever(100));
        client.start();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] asked = lines.nextLine().split(" ");
            System.out.println(
                measure(client, asked[0].equals("changes"), Integer.parseInt(asked[2]), Long.parseLong(asked[3])));
        }
        client.close();
    }
}
