/* Loads and stores of the host beside work that uses the same memory, one way for each word. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);

enum { HALF = 512, WORDS = 2 * HALF };

static int *host, *big;
static sigjmp_buf after;
static volatile int flag;

static void *write_first(void *none) {
    (void)none;
    host[7] = 1; /* in a thread */
    return NULL;
}

static void handle(int signal) {
    (void)signal;
    siglongjmp(after, 1);
}

static void raise_flag(void *none) {
    (void)none;
    flag = 1;
}

#ifdef __x86_64__
/* Single instructions, which trap after each element. */
static void fill(void *start, size_t bytes) {
    __asm__ volatile("rep stosb" : "+D"(start), "+c"(bytes) : "a"(9) : "memory");
}

static void move(void *to, const void *from, size_t bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/* Of ints, from the last one to the first. */
static void move_down(int *to, const int *from, size_t count) {
    to += count - 1;
    from += count - 1;
    __asm__ volatile("std\n\trep movsl\n\tcld" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static int compare(const char *one, const char *other, size_t bytes) {
    int difference;
    __asm__ volatile("xorl %0, %0\n\trepe cmpsb\n\tsetne %b0"
                     : "=&a"(difference), "+D"(one), "+S"(other), "+c"(bytes) : : "memory", "cc");
    return difference;
}
#else
static void fill(void *start, size_t bytes) {
    memset(start, 9, bytes);
}

static void move(void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
}

static void move_down(int *to, const int *from, size_t count) {
    memmove(to, from, count * sizeof(int));
}

static int compare(const char *one, const char *other, size_t bytes) {
    return memcmp(one, other, bytes) != 0;
}
#endif

static void require(int is_right, const char *what) {
    if (is_right) return;
    printf("wrong: %s\n", what);
    exit(3);
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    int *device, sum = 0;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, 1);
    cudaMalloc((void **)&device, WORDS * sizeof(int));
    cudaMallocHost((void **)&host, WORDS * sizeof(int));
    cudaMallocHost((void **)&big, 10 * WORDS * sizeof(int));
    for (int i = 0; i < WORDS; i++) host[i] = i;
    cudaMemcpyAsync(device, host, HALF * sizeof(int), 1, stream); /* copy to the device */
    if (strcmp(word, "halves") == 0) {
        /* The rest of the page is the program's. */
        for (int i = HALF; i < WORDS; i++) host[i] *= 2;
        for (int i = HALF; i < WORDS; i++) sum += host[i];
        require(sum == 2 * HALF * (HALF + WORDS - 1) / 2, "the sum of the second half");
    } else if (strcmp(word, "reads") == 0) {
        for (int i = 0; i < WORDS; i++) sum += host[i];
        require(sum == WORDS * (WORDS - 1) / 2, "the sum");
    } else if (strcmp(word, "store") == 0) {
        host[HALF - 1] = 1; /* store */
    } else if (strcmp(word, "load") == 0) {
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream); /* copy to the host */
        sum = host[HALF]; /* load */
    } else if (strcmp(word, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, write_first, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(word, "handler") == 0) {
        /* The program's own handler gets what is not about this memory. */
        signal(SIGSEGV, handle);
        cudaMemcpyAsync(device, host, HALF * sizeof(int), 1, stream);
        host[WORDS - 1] = 5;
        if (sigsetjmp(after, 1) == 0) *(volatile int *)8 = 1;
        else sum = 1;
        require(sum == 1 && host[WORDS - 1] == 5, "the handler");
    } else if (strcmp(word, "flag") == 0) {
        /* A function in the stream tells the program that the copy is done. */
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream);
        cudaLaunchHostFunc(stream, raise_flag, NULL);
        while (!flag) {}
        for (int i = 0; i < HALF; i++) sum += host[HALF + i];
        require(sum == HALF * (HALF - 1) / 2, "the sum of what was copied");
    } else if (strcmp(word, "poll") == 0) {
        /* The value may be what tells the program that the work is over. */
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream);
        for (int i = 0; i < 5000; i++) sum += *(volatile int *)host;
        require(sum == 0, "what was polled");
        host[0] = 1;
    } else if (strcmp(word, "scan") == 0) {
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream);
        for (int i = 0; i < 10 * HALF; i++) sum += ((volatile int *)host)[i % HALF];
        host[0] = 1; /* store after many loads */
    } else if (strcmp(word, "fills") == 0) {
        /* Other bytes of the page. */
        fill(host + HALF, HALF * sizeof(int));
        fill(host + HALF, HALF * sizeof(int));
        fill(host + HALF, HALF * sizeof(int));
        move(host + HALF, host, 16);
        require(host[WORDS - 1] == 0x09090909 && host[HALF + 3] == 3, "what was filled");
        host[1] = 1; /* store after fills */
    } else if (strcmp(word, "fill") == 0) {
        cudaStreamSynchronize(stream);
        cudaMemcpyAsync(device, host + 100, 4, 1, stream); /* copy of a word */
        fill(host, WORDS * sizeof(int)); /* fill */
    } else if (strcmp(word, "move") == 0) {
        /* What is read has a page of its own. */
        cudaMemcpyAsync(big + 3 * WORDS + 5, device, 4, 2, stream); /* copy to a word */
        move(big + 7 * WORDS, big + 2 * WORDS + 3, 2 * WORDS * sizeof(int)); /* move */
    } else if (strcmp(word, "down") == 0) {
        for (int i = 0; i < 4 * WORDS; i++) big[i] = i;
        cudaMemcpyAsync(device, big + 5 * WORDS, 4, 1, stream); /* copy of a later word */
        move_down(big + 4 * WORDS + 1, big + 1, 2 * WORDS); /* move down */
        require(big[4 * WORDS + 1] == 1 && big[6 * WORDS] == 2 * WORDS, "what was moved");
    } else if (strcmp(word, "compare") == 0) {
        /* The second page is not compared. */
        cudaMemcpyAsync(big + WORDS, device, 4, 2, stream);
        cudaMemcpyAsync(big + WORDS - 1, device, 4, 2, stream); /* copy to what is compared */
        require(compare((char *)(big + WORDS / 2), (char *)(big + WORDS + WORDS / 2), WORDS * 2) == 0, "the comparison"); /* comparison */
    }
    cudaStreamSynchronize(stream);
    cudaFreeHost(big);
    cudaFree(device);
    cudaFreeHost(host);
    cudaStreamDestroy(stream);
    puts("done");
    return 0;
}
