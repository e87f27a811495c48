/* Errors that are visible at calls, one for each word. With "fixed" as the second word the program is correct. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t, *cudaLibrary_t, *cudaKernel_t, *cudaGraph_t, *cudaGraphExec_t, *cudaGraphNode_t;
typedef struct { unsigned x, y, z; } dim3;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t), cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t), cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int, cudaStream_t);
cudaError_t cudaMemset(void *, int, size_t), cudaMemcpy(void *, const void *, size_t, int);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamDestroy(cudaStream_t), cudaDeviceSynchronize(void);
cudaError_t cudaStreamSynchronize(cudaStream_t), cudaStreamQuery(cudaStream_t), cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
cudaError_t cudaEventCreate(cudaEvent_t *), cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventDestroy(cudaEvent_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned), cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaStreamBeginCapture(cudaStream_t, int), cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long), cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t), cudaGraphExecDestroy(cudaGraphExec_t), cudaGraphCreate(cudaGraph_t *, unsigned);
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t, cudaGraph_t);
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t, cudaGraphNode_t, cudaGraph_t);
cudaError_t cudaLibraryLoadData(cudaLibrary_t *, const void *, void *, void **, unsigned, void *, void **, unsigned);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *, cudaLibrary_t, const char *), cudaLibraryUnload(cudaLibrary_t);
cudaError_t cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);

enum { BYTES = 1 << 16, TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };

/* Writes one word at its first argument. The second one is not used. */
static const char PTX[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry touch(.param .u64 first, .param .u64 second) {\n"
    "  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [first];\n"
    "  cvta.to.global.u64 %rd2, %rd1;\n"
    "  st.global.u32 [%rd2], 7;\n"
    "  ret;\n}\n";

/* Writes to a variable of its module. */
static const char VARIABLE[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .b8 room[65536];\n"
    ".visible .entry write(.param .u64 first, .param .u64 second) {\n"
    "  .reg .b64 %rd<2>;\n"
    "  mov.u64 %rd1, room;\n"
    "  st.global.u32 [%rd1+4096], 7;\n"
    "  ret;\n}\n";

static cudaStream_t first, second;
static cudaLibrary_t library;
static cudaKernel_t kernel;
static char pool;
static int is_fixed;

static void touch(void *one, void *other, cudaStream_t stream) {
    void *arguments[] = {&one, &other};
    dim3 size = {1, 1, 1};
    if (cudaLaunchKernel(kernel, size, size, arguments, 0, stream) != 0) puts("the launch failed");
}

/* Lets the second stream wait for the first. */
static void order(void) {
    cudaEvent_t event;
    cudaEventCreate(&event);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
    cudaEventDestroy(event);
}

static void handed_out(void *block, size_t bytes) {
    void (*call)(void *, void *, size_t, void *);
    *(void **)&call = dlsym(RTLD_DEFAULT, "freehold_check_handed_out");
    call(&pool, block, bytes, NULL);
}

static void freed(void *block) {
    void (*call)(void *, void *, void *);
    *(void **)&call = dlsym(RTLD_DEFAULT, "freehold_check_freed");
    call(&pool, block, NULL);
}

static void nothing(void *data) {
    (void)data;
}

/* Errors between two streams, and between a stream and the host. */
static int run_streams(const char *kind, char *block, char *other, char *host) {
    if (strcmp(kind, "copy") == 0) {
        cudaMemcpyAsync(block, host, BYTES, TO_DEVICE, first); /* copied */
        if (is_fixed) order();
        touch(block, other, second); /* launched */
    } else if (strcmp(kind, "part") == 0) {
        /* The kernel may use the other half: correct in both versions. */
        cudaMemcpyAsync(block, host, BYTES / 2, TO_DEVICE, first);
        touch(block, other, second);
        touch(other, block + BYTES / 2, second);
        /* Kernels may read: as correct. */
        cudaMemcpyAsync(host, other, BYTES, TO_HOST, first);
        touch(other, block, first);
    } else if (strcmp(kind, "rows") == 0) {
        cudaMemcpy2DAsync(block, 64, host, 64, is_fixed ? 32 : 36, BYTES / 64, TO_DEVICE, first); /* left */
        cudaMemcpy2DAsync(block + 32, 64, host + 32, 64, 32, BYTES / 64, TO_DEVICE, second); /* right */
    } else if (strcmp(kind, "legacy") == 0) {
        cudaStream_t blocking;
        cudaStreamCreateWithFlags(&blocking, is_fixed ? 0 : 1);
        cudaMemset(block, 0, BYTES); /* filled */
        touch(block, other, blocking); /* unordered */
        cudaMemset(other, 0, BYTES);
        if (is_fixed) cudaMemset(block, 0, BYTES);
        cudaStreamDestroy(blocking);
    } else if (strcmp(kind, "waits") == 0) {
        cudaEvent_t event;
        int word[1];
        cudaEventCreate(&event);
        for (int wait = 0; wait < 4; wait++) {
            cudaMemsetAsync(block, 0, BYTES, first); /* early */
            cudaEventRecord(event, first);
            if (is_fixed && wait == 0) cudaEventSynchronize(event);
            if (is_fixed && wait == 1) cudaStreamSynchronize(first);
            if (is_fixed && wait == 2) while (cudaStreamQuery(first) != 0) {}
            if (is_fixed && wait == 3) cudaMemcpyAsync(word, block, sizeof word, TO_HOST, first); /* pageable */
            cudaMemsetAsync(block, 1, BYTES, second); /* late */
            cudaDeviceSynchronize();
        }
        cudaEventDestroy(event);
    } else if (strcmp(kind, "callback") == 0) {
        cudaLaunchHostFunc(first, nothing, NULL);
        cudaMemsetAsync(block, 0, BYTES, first); /* after */
        if (is_fixed) order();
        cudaMemsetAsync(block, 1, BYTES, second); /* beside */
    } else {
        return 0;
    }
    return 1;
}

/* Errors with memory that is freed, or handed out again. */
static int run_memory(const char *kind, char *block, char *other, char *host) {
    if (strcmp(kind, "free") == 0) {
        void *mine;
        cudaMallocAsync(&mine, BYTES, first);
        cudaStreamSynchronize(first);
        touch(mine, other, first); /* user */
        if (is_fixed) order();
        cudaFreeAsync(mine, second); /* freed */
    } else if (strcmp(kind, "after") == 0) {
        void *mine;
        cudaMallocAsync(&mine, BYTES, first);
        if (is_fixed) touch(block, mine, first);
        cudaFreeAsync(mine, first); /* gone */
        if (!is_fixed) touch(block, mine, first); /* used */
    } else if (strcmp(kind, "pinned") == 0) {
        void *staging;
        cudaMallocHost(&staging, BYTES);
        cudaMemcpyAsync(block, staging, BYTES, TO_DEVICE, first); /* upload */
        if (is_fixed) cudaStreamSynchronize(first);
        cudaFreeHost(staging); /* unpinned */
    } else if (strcmp(kind, "reuse") == 0) {
        handed_out(block, BYTES / 2);
        touch(block, other, first); /* owner */
        if (is_fixed) order();
        freed(block);
        handed_out(block, BYTES / 4);
        touch(block, other, second); /* heir */
    } else if (strcmp(kind, "beyond") == 0) {
        handed_out(block, 256); /* handed */
        handed_out(block + 512, 256);
        cudaMemsetAsync(block, 0, is_fixed ? 256 : 260, first); /* overrun */
    } else if (strcmp(kind, "interior") == 0) {
        if (!is_fixed) cudaFree(block + 256); /* inside */
    } else if (strcmp(kind, "kind") == 0) {
        if (!is_fixed) cudaFree(host); /* wrong */
    } else {
        return 0;
    }
    return 1;
}

/* Makes a graph that fills a block. */
static void fill_graph(cudaGraph_t *graph, char *block) {
    cudaStreamBeginCapture(first, 0);
    cudaMemsetAsync(block, 0, BYTES, first);
    cudaStreamEndCapture(first, graph);
}

/* Errors with graphs, modules and handles. */
static void run_objects(const char *kind, char *block, char *other) {
    if (strcmp(kind, "graph") == 0) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaStreamBeginCapture(first, 0);
        cudaMemsetAsync(block, 0, BYTES, first);
        touch(other, block, first);
        cudaStreamEndCapture(first, &graph);
        cudaGraphInstantiate(&exec, graph, 0);
        /* Nothing has run yet. */
        cudaMemsetAsync(block, 0, BYTES, second);
        cudaDeviceSynchronize();
        cudaGraphLaunch(exec, first); /* graph */
        if (is_fixed) order();
        cudaMemsetAsync(block, 1, BYTES, second); /* concurrent */
        cudaDeviceSynchronize();
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    } else if (strcmp(kind, "child") == 0) {
        cudaGraph_t whole, inner, other_inner;
        cudaGraphNode_t node;
        cudaGraphExec_t exec;
        fill_graph(&inner, other);
        fill_graph(&other_inner, block);
        cudaGraphCreate(&whole, 0);
        cudaGraphAddChildGraphNode(&node, whole, NULL, 0, inner);
        cudaGraphInstantiate(&exec, whole, 0);
        cudaGraphExecChildGraphNodeSetParams(exec, node, other_inner);
        /* It fills this block no more. */
        cudaGraphLaunch(exec, first); /* child */
        cudaMemsetAsync(other, 1, BYTES, second);
        if (is_fixed) order();
        cudaMemsetAsync(block, 1, BYTES, second); /* beside_child */
        cudaDeviceSynchronize();
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(whole);
        cudaGraphDestroy(inner);
        cudaGraphDestroy(other_inner);
    } else if (strcmp(kind, "context") == 0) {
        void *context;
        handed_out(block, 256);
        /* The block is not of this context. */
        cuCtxCreate_v2(&context, 0, 0);
        cuCtxDestroy_v2(context);
        freed(block);
        if (!is_fixed) freed(block); /* again */
    } else if (strcmp(kind, "open") == 0) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(first, 0); /* begun */
        if (is_fixed) cudaStreamEndCapture(first, &graph), cudaGraphDestroy(graph);
    } else if (strcmp(kind, "variable") == 0) {
        cudaLibrary_t late;
        void *gone;
        cudaMalloc(&gone, BYTES);
        cudaMemset(gone, 0, BYTES);
        cudaFree(gone);
        /* The variable gets the memory of the block. */
        cudaLibraryLoadData(&late, VARIABLE, NULL, NULL, 0, NULL, NULL, 0);
        cudaLibraryGetKernel(&kernel, late, "write");
        touch(block, other, first);
        cudaDeviceSynchronize();
        cudaLibraryUnload(late);
    } else if (strcmp(kind, "library") == 0) {
        touch(block, other, first);
        if (is_fixed) cudaStreamSynchronize(first);
        cudaLibraryUnload(library); /* unloaded */
        library = NULL;
    } else if (strcmp(kind, "stream") == 0) {
        cudaStreamDestroy(second);
        if (!is_fixed) cudaMemsetAsync(block, 0, BYTES, second); /* stale */
        cudaStreamCreateWithFlags(&second, 1);
        cudaMemsetAsync(block, 0, BYTES, second);
    }
}

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    is_fixed = count > 2 && strcmp(words[2], "fixed") == 0;
    void *block, *other, *host;
    cudaStreamCreateWithFlags(&first, 1);
    cudaStreamCreateWithFlags(&second, 1);
    cudaMalloc(&block, BYTES);
    cudaMalloc(&other, BYTES);
    cudaMallocHost(&host, BYTES);
    cudaLibraryLoadData(&library, PTX, NULL, NULL, 0, NULL, NULL, 0);
    cudaLibraryGetKernel(&kernel, library, "touch");
    if (!run_streams(kind, block, other, host) && !run_memory(kind, block, other, host)) run_objects(kind, block, other);
    int is_open = strcmp(kind, "open") == 0 && !is_fixed;
    if (!is_open) {
        cudaDeviceSynchronize();
        if (library != NULL) cudaLibraryUnload(library);
        cudaStreamDestroy(first);
        cudaStreamDestroy(second);
        cudaFree(block);
        cudaFree(other);
        cudaFreeHost(host);
    }
    puts("done");
    return 0;
}
