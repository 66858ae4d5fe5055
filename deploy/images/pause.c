/* The process that holds a pod's namespaces open: it reaps orphans (it is pid 1 when they share its pid namespace) and ends when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    sigset_t signals;
    int received;

    /* Blocked, then fetched one by one: no handler, so no window in which a signal could be lost. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
        return EXIT_FAILURE;

    for (;;) {
        if (sigwait(&signals, &received) != 0)
            return EXIT_FAILURE;
        if (received != SIGCHLD)
            return EXIT_SUCCESS;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
}
