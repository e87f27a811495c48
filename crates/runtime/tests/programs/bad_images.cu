// Kernels whose images cannot be used: the code of every launch, and that the context goes on working.
#include "show.h"

#include <stdint.h>
#include <string.h>

extern "C" {
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *name, const char *device_name, int threads, uint3 *,
                            uint3 *, dim3 *, dim3 *, int *);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);
}

// What compilers pass to __cudaRegisterFatBinary, and what it points to: one entry of PTX.
struct Wrapper {
    int32_t magic, version;
    const void *data;
    void *unused;
};

struct Image {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    uint16_t kind, entry_version;
    uint32_t entry_header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t target, name_offset, name_bytes;
    uint64_t flags, zero, raw_bytes;
    char text[512];
};

__global__ void good(int *to) { *to = 1; }

// Registers an image with one kernel, and shows what each way to use it returns.
static void show(const char *what, uint32_t target, const char *text, const char *kernel) {
    static Image images[8];
    static Wrapper wrappers[8];
    static char stubs[8];
    static int count = 0;
    Image *image = &images[count];
    *image = {0xba55ed50, 1, 16, sizeof(Image) - 16, 1, 0x101, 64, sizeof image->text, 0, 64, 0, 8, target, 0, 0, 0x11, 0, 0, {}};
    strcpy(image->text, text);
    wrappers[count] = {0x466243b1, 1, image, nullptr};
    char *stub = &stubs[count];
    void **handle = __cudaRegisterFatBinary(&wrappers[count++]);
    __cudaRegisterFunction(handle, stub, (char *)kernel, kernel, -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    printf("%s, cudaLaunchKernel: %s\n", what, cudaGetErrorName(cudaLaunchKernel(stub, 1, 1, nullptr, 0, 0)));
    printf("%s, last error: %s\n", what, cudaGetErrorName(cudaGetLastError()));
    cudaFuncAttributes attributes;
    printf("%s, cudaFuncGetAttributes: %s\n", what, cudaGetErrorName(cudaFuncGetAttributes(&attributes, stub)));
    cudaGetLastError();
    // As the code behind <<<>>> does, which asks for the kernel once.
    cudaKernel_t asked = nullptr;
    __cudaGetKernel(&asked, stub);
    cudaGetLastError();
    for (int i = 0; i < 2; i++) {
        printf("%s, <<<>>>: %s\n", what, cudaGetErrorName(__cudaLaunchKernel(asked, 1, 1, nullptr, 0, 0)));
        cudaGetLastError();
    }
    int *to, value = 0;
    CHECK(cudaMalloc(&to, sizeof *to));
    good<<<1, 1>>>(to);
    CHECK(cudaMemcpy(&value, to, sizeof value, cudaMemcpyDeviceToHost));
    printf("%s, another kernel: %d\n", what, value);
    CHECK(cudaFree(to));
}

int main() {
    show("no error", 75, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n", "f");
    show("no such kernel", 75, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n", "g");
    show("invalid PTX", 75, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { rett; }\n", "f");
    show("PTX of a newer version", 75, ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n", "f");
    show("PTX for a newer device", 121, ".version 9.0\n.target sm_121\n.address_size 64\n.visible .entry f() { ret; }\n", "f");
    return 0;
}
