// The driver's log of errors: its end, its text, and a callback.
#include "show.h"

static int lines;
static void CUDART_CB note(void *data, cudaLogLevel, char *message, size_t length) {
    lines += message != NULL && length > 0 && data == &lines;
}

int main() {
    CHECK(cudaFree(0));
    cudaLogIterator end = 0;
    CHECK(cudaLogsCurrent(&end, 0));
    cudaLogsCallbackHandle handle;
    CHECK(cudaLogsRegisterCallback(note, &lines, &handle));
    CHECK(cudaLogsUnregisterCallback(handle));
    static char text[4096];
    size_t size = sizeof text;
    CHECK(cudaLogsDumpToMemory(&end, text, &size, 0));
    printf("nothing new: %d, lines %d\n", size == 0 || text[0] == 0, lines);
    CHECK(cudaLogsDumpToFile(NULL, "/dev/null", 0));
    SHOW(cudaLogsCurrent(NULL, 0));
    SHOW(cudaLogsCurrent(&end, 1));
    return 0;
}
