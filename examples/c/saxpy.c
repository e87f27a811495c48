/*
 * y = a * x + y on the device, by the driver API alone: allocate, copy, load PTX, launch, copy back, check, free.
 *
 *     cc -I crates/libcuda/include examples/c/saxpy.c -L FOLDER_OF_LIBCUDA -lcuda -o saxpy
 *     freehold run --device soft -- ./saxpy
 */
#include <freehold_cuda.h>

#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static const char PTX[] =
    ".version 7.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 count)\n"
    "{\n"
    "    .reg .pred %outside;\n"
    "    .reg .b32 %index, %block, %width, %limit;\n"
    "    .reg .b64 %x, %y, %offset;\n"
    "    .reg .f32 %a, %one, %other;\n"
    "    mov.u32 %block, %ctaid.x;\n"
    "    mov.u32 %width, %ntid.x;\n"
    "    mov.u32 %index, %tid.x;\n"
    "    mad.lo.u32 %index, %block, %width, %index;\n"
    "    ld.param.u32 %limit, [count];\n"
    "    setp.ge.u32 %outside, %index, %limit;\n"
    "    @%outside ret;\n"
    "    mul.wide.u32 %offset, %index, 4;\n"
    "    ld.param.u64 %x, [x];\n"
    "    add.u64 %x, %x, %offset;\n"
    "    ld.param.u64 %y, [y];\n"
    "    add.u64 %y, %y, %offset;\n"
    "    ld.param.f32 %a, [a];\n"
    "    ld.global.f32 %one, [%x];\n"
    "    ld.global.f32 %other, [%y];\n"
    "    fma.rn.f32 %other, %a, %one, %other;\n"
    "    st.global.f32 [%y], %other;\n"
    "    ret;\n"
    "}\n";

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        const char *name = "an unknown code";
        cuGetErrorName(result, &name);
        fprintf(stderr, "%s: %s\n", call, name);
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

int main(void)
{
    CUdevice device;
    CUcontext context;
    char name[100];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));

    float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
        y[i] = 1.0f;
    }
    CUdeviceptr device_x, device_y;
    CHECK(cuMemAlloc(&device_x, sizeof x));
    CHECK(cuMemAlloc(&device_y, sizeof y));
    CHECK(cuMemcpyHtoD(device_x, x, sizeof x));
    CHECK(cuMemcpyHtoD(device_y, y, sizeof y));

    CUmodule module;
    CUfunction saxpy;
    CHECK(cuModuleLoadData(&module, PTX));
    CHECK(cuModuleGetFunction(&saxpy, module, "saxpy"));
    float a = 2.0f;
    unsigned int count = COUNT;
    void *parameters[] = {&a, &device_x, &device_y, &count};
    CHECK(cuLaunchKernel(saxpy, (COUNT + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(y, device_y, sizeof y));

    for (int i = 0; i < COUNT; i++) {
        if (y[i] != 2.0f * (float)i + 1.0f) {
            fprintf(stderr, "y[%d] is %f\n", i, y[i]);
            return 1;
        }
    }
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(device_x));
    CHECK(cuMemFree(device_y));
    CHECK(cuDevicePrimaryCtxRelease(device));
    printf("%s: %d elements are right\n", name, COUNT);
    return 0;
}
