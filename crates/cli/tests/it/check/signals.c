/* Handlers of signals and stacks of a program whose loads and stores are watched, one way for each word. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
cudaError_t cudaMalloc(void **, size_t), cudaMallocHost(void **, size_t);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamSynchronize(cudaStream_t);

enum { HALF = 512, WORDS = 2 * HALF };

static int *host, *device;
static cudaStream_t stream;

static void copy(void) {
    cudaMemcpyAsync(device, host, HALF * sizeof(int), 1, stream);
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(4);
}

static void require(int is_right, const char *what) {
    if (is_right) return;
    say(what);
    _exit(3);
}

static struct sigaction before_first, before_second;

static void pass(const struct sigaction *action, int number, siginfo_t *info, void *context) {
    if (action->sa_flags & SA_SIGINFO) action->sa_sigaction(number, info, context);
    else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) action->sa_handler(number);
    else {
        sigaction(number, action, NULL);
        if (info->si_code <= 0) raise(number);
    }
}

static void first(int number, siginfo_t *info, void *context) {
    say("first\n");
    pass(&before_first, number, info, context);
}

static void second(int number, siginfo_t *info, void *context) {
    say("second\n");
    pass(&before_second, number, info, context);
}

static void once(int number) {
    (void)number;
    say("once\n");
}

static void install(void (*handler)(int, siginfo_t *, void *), struct sigaction *before) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    require(sigaction(SIGSEGV, &action, before) == 0, "sigaction");
    copy();
}

static sigjmp_buf after;

static void jump(int number) {
    siglongjmp(after, number);
}

static volatile int is_blocked;

/* Skips the store of `fault`. */
static void look(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    is_blocked = sigismember(&mask, SIGUSR1) + 2 * sigismember(&mask, SIGUSR2) + 4 * sigismember(&mask, SIGSEGV);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void fault(void) {
    /* Two bytes. */
    __asm__ volatile("movb %%cl, (%0)" : : "a"(8L), "c"(1) : "memory");
}

/* Maps memory with a page below it that cannot be accessed. */
static char *map(size_t bytes) {
    char *start = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(start != MAP_FAILED && mprotect(start, 4096, PROT_NONE) == 0, "mmap");
    return start + 4096;
}

static ucontext_t outside, inside;

static void store(void) {
    for (int i = HALF; i < WORDS; i++) host[i] = 5;
}

/* Stores from a stack of one page, with as large a stack for signals as many programs have. */
static void *store_on_small_stacks(void *none) {
    size_t least = getauxval(AT_MINSIGSTKSZ), bytes = least + 4096 > 8192 ? (least + 2 * 4096) & ~4095UL : 8192;
    stack_t stack = {.ss_sp = map(bytes), .ss_size = bytes};
    require(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    getcontext(&inside);
    inside.uc_stack.ss_sp = map(4096);
    inside.uc_stack.ss_size = 4096;
    inside.uc_link = &outside;
    makecontext(&inside, store, 0);
    swapcontext(&outside, &inside);
    return none;
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    if (strcmp(word, "early") == 0) {
        struct sigaction action = {.sa_sigaction = first, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, &before_first);
    }
    cudaStreamCreateWithFlags(&stream, 1);
    cudaMalloc((void **)&device, WORDS * sizeof(int));
    cudaMallocHost((void **)&host, WORDS * sizeof(int));
    copy();
    if (strcmp(word, "chain") == 0) {
        install(first, &before_first);
        fault();
    } else if (strcmp(word, "long") == 0) {
        install(first, &before_first);
        install(second, &before_second);
        fault();
    } else if (strcmp(word, "early") == 0) {
        install(second, &before_second);
        fault();
    } else if (strcmp(word, "once") == 0) {
        struct sigaction action = {.sa_handler = once, .sa_flags = SA_RESETHAND};
        sigaction(SIGSEGV, &action, NULL);
        copy();
        fault();
    } else if (strcmp(word, "jumps") == 0) {
        signal(SIGSEGV, jump);
        copy();
        for (volatile int i = 0; i < 3; i++) {
            if (sigsetjmp(after, 1) == 0) fault();
            host[HALF + i] = 5;
        }
    } else if (strcmp(word, "raised") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(word, "trapped") == 0) {
        __asm__ volatile("int3");
    } else if (strcmp(word, "sent") == 0) {
        /* With an address, as a process that sends a signal may state it. */
        siginfo_t info = {.si_signo = SIGSEGV, .si_code = SI_QUEUE};
        info.si_addr = host;
        syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGSEGV, &info);
    } else if (strcmp(word, "mask") == 0) {
        struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
        sigaddset(&action.sa_mask, SIGUSR1);
        sigaction(SIGSEGV, &action, NULL);
        copy();
        fault();
        require(is_blocked == 1 + 4, "the mask");
    } else if (strcmp(word, "stacks") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, store_on_small_stacks, NULL);
        pthread_join(thread, NULL);
        require(host[HALF] == 5 && host[WORDS - 1] == 5, "the stores");
    }
    say("done\n");
    cudaStreamSynchronize(stream);
    return 0;
}
