/* Curator's locks, for interop_test.py: Curator PORT SESSION_MS. It has one lock at a time, on one
 * thread, since they belong to threads. It is in Curator's own package, because the lock's node is
 * not public. */
package org.apache.curator.framework.recipes.locks;

import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.KeeperException;

public class Curator {
    private final CuratorFramework client;
    private InterProcessMutex lock;

    Curator(String server, int sessionMs) {
        client = CuratorFrameworkFactory.newClient(server, sessionMs, 30000, new RetryForever(100));
        client.start();
    }

    InterProcessMutex lockOf(String kind, String path) {
        if (kind.equals("mutex"))
            return new InterProcessMutex(client, path);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        return kind.equals("read") ? both.readLock() : both.writeLock();
    }

    boolean does(String[] words) throws Exception {
        switch (words[0]) {
        case "acquire":
            lock = lockOf(words[1], words[2]);
            return lock.acquire(0, TimeUnit.MILLISECONDS);
        case "wait":
            lock = lockOf(words[1], words[2]);
            lock.acquire();
            return true;
        case "has":
            return client.checkExists().forPath(lock.getLockPath()) != null;
        default:
            lock.release();
            return true;
        }
    }

    boolean answers(String[] words) throws Exception {
        try {
            return does(words);
        } catch (KeeperException e) {
            return false;
        }
    }

    public static void main(String[] words) throws Exception {
        Curator curator = new Curator("127.0.0.1:" + words[0], Integer.parseInt(words[1]));
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine())
            System.out.println(curator.answers(lines.nextLine().split(" ")) ? "yes" : "no");
    }
}
