/* Breaks a lock, for the tests of the command: break URL NAME TOKEN. */
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    hf_client *client;
    if (argc != 4)
        return 64;
    int r = hf_client_open(argv[1], NULL, &client);
    if (r == HF_OK)
        r = hf_break(client, argv[2], strtoull(argv[3], NULL, 10), NULL);
    if (r < 0)
        fprintf(stderr, "%s\n", hf_last_error());
    hf_client_close(r == HF_OK ? client : NULL);
    return r < 0;
}
