// Runs the same kernels on an OpenCL device and on a CUDA device in turn, compares their results, and prints a table of
// their times: compare KERNELS.CL PTX_FOLDER PTX_FOLDER [ROUNDS]

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <freehold_cuda.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace {

void check(int code, const char *call) {
    if (code != 0) {
        std::fprintf(stderr, "%s failed with %d\n", call, code);
        std::exit(1);
    }
}

#define CL(call) check(call, #call)
#define CU(call) check(int(call), #call)

std::string read(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// An array of words, or one word.
struct Argument {
    enum { Out, In, Value } kind;
    std::vector<uint32_t> words;
};

struct Work {
    const char *name;
    size_t blocks[2], threads[2];
    std::vector<Argument> arguments;
};

uint32_t word(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

std::vector<uint32_t> floats(size_t count, uint32_t seed, float low, float high) {
    std::vector<uint32_t> words(count);
    for (uint32_t &at : words) {
        seed = seed * 1664525 + 1013904223;
        at = word(low + (high - low) * float(seed >> 8) / 16777216.0f);
    }
    return words;
}

Argument in(std::vector<uint32_t> words) { return {Argument::In, std::move(words)}; }
Argument out(size_t count) { return {Argument::Out, std::vector<uint32_t>(count)}; }
Argument value(uint32_t word) { return {Argument::Value, {word}}; }

// The kernels, each with `scale` times the blocks of ../../crates/ptx/benches/kernels.rs.
std::vector<Work> works(uint32_t scale) {
    uint32_t side = 64 * uint32_t(std::sqrt(float(scale))), count = 32768 * scale, options = 16384 * scale;
    uint32_t sums = 64 * scale, words = 65536 * scale;
    uint32_t image = side, width = 256, height = 128 * scale;
    return {
        {"saxpy", {count / 128, 1}, {128, 1}, {{Argument::Out, floats(count, 1, -1, 1)}, in(floats(count, 2, -1, 1)), value(word(2.5f)), value(count)}},
        {"reduction", {sums, 1}, {256, 1}, {out(sums), in(floats(sums * 1024, 3, -1, 1))}},
        {"matmul_tiled", {side / 16, side / 16}, {16, 16}, {out(side * side), in(floats(side * side, 4, -1, 1)), in(floats(side * side, 5, -1, 1)), value(side)}},
        {"black_scholes", {options / 128, 1}, {128, 1}, {out(options), out(options), in(floats(options, 6, 5, 30)), in(floats(options, 7, 1, 100)), in(floats(options, 8, 0.25f, 10)), value(word(0.02f)), value(word(0.3f)), value(options)}},
        {"histogram", {16 * scale, 1}, {256, 1}, {in(floats(words, 9, 0, 1)), out(256), value(words)}},
        {"mandelbrot", {image / 16, image / 16}, {16, 16}, {out(image * image), value(image), value(word(3.0f / float(image)))}},
        {"stencil", {width / 32, height / 8}, {32, 8}, {in(floats(width * height, 10, -1, 1)), out(width * height), value(width), value(height)}},
    };
}

double seconds(const std::function<void()> &run) {
    auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct OpenCl {
    cl_context context;
    cl_command_queue queue;
    cl_program program;

    explicit OpenCl(const std::string &text) {
        cl_platform_id platform;
        cl_device_id device;
        int code;
        CL(clGetPlatformIDs(1, &platform, nullptr));
        CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, nullptr));
        char name[256];
        CL(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, nullptr));
        std::printf("OpenCL: %s\n", name);
        context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
        CL(code);
        queue = clCreateCommandQueue(context, device, 0, &code);
        CL(code);
        const char *source = text.c_str();
        program = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
        CL(code);
        CL(clBuildProgram(program, 1, &device, "-cl-std=CL1.2", nullptr, nullptr));
    }

    struct Ready {
        cl_kernel kernel;
        std::vector<cl_mem> buffers;
    };

    Ready prepare(const Work &work) {
        int code;
        Ready ready{clCreateKernel(program, work.name, &code), {}};
        CL(code);
        for (cl_uint index = 0; index < work.arguments.size(); index++) {
            const Argument &argument = work.arguments[index];
            size_t bytes = argument.words.size() * 4;
            if (argument.kind == Argument::Value) {
                CL(clSetKernelArg(ready.kernel, index, 4, argument.words.data()));
                continue;
            }
            cl_mem buffer = clCreateBuffer(
                context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, const_cast<uint32_t *>(argument.words.data()), &code);
            CL(code);
            CL(clSetKernelArg(ready.kernel, index, sizeof buffer, &buffer));
            ready.buffers.push_back(buffer);
        }
        return ready;
    }

    void run(const Work &work, const Ready &ready) {
        size_t global[2] = {work.blocks[0] * work.threads[0], work.blocks[1] * work.threads[1]};
        CL(clEnqueueNDRangeKernel(queue, ready.kernel, 2, nullptr, global, work.threads, 0, nullptr, nullptr));
        CL(clFinish(queue));
    }

    void read(const Ready &ready, size_t index, std::vector<uint32_t> &words) {
        CL(clEnqueueReadBuffer(queue, ready.buffers[index], CL_TRUE, 0, words.size() * 4, words.data(), 0, nullptr, nullptr));
    }
};

struct Cuda {
    std::vector<std::string> folders;

    explicit Cuda(std::vector<std::string> folders) : folders(std::move(folders)) {
        CUdevice device;
        CUcontext context;
        CU(cuInit(0));
        CU(cuDeviceGet(&device, 0));
        CU(cuDevicePrimaryCtxRetain(&context, device));
        CU(cuCtxSetCurrent(context));
        char name[256];
        CU(cuDeviceGetName(name, sizeof name, device));
        std::printf("CUDA: %s\n", name);
    }

    struct Ready {
        CUfunction kernel;
        std::vector<CUdeviceptr> buffers;
    };

    Ready prepare(const Work &work) {
        Ready ready{};
        std::string text;
        for (const std::string &folder : folders)
            if (text.empty())
                text = ::read(folder + "/" + work.name + ".ptx");
        CUmodule module;
        CU(cuModuleLoadData(&module, text.c_str()));
        CU(cuModuleGetFunction(&ready.kernel, module, work.name));
        for (const Argument &argument : work.arguments)
            if (argument.kind != Argument::Value) {
                CUdeviceptr buffer;
                CU(cuMemAlloc(&buffer, argument.words.size() * 4));
                CU(cuMemcpyHtoD(buffer, argument.words.data(), argument.words.size() * 4));
                ready.buffers.push_back(buffer);
            }
        return ready;
    }

    void run(const Work &work, const Ready &ready) {
        std::vector<void *> arguments;
        size_t buffer = 0;
        for (const Argument &argument : work.arguments)
            arguments.push_back(
                argument.kind == Argument::Value ? const_cast<uint32_t *>(argument.words.data())
                                                 : static_cast<void *>(const_cast<CUdeviceptr *>(&ready.buffers[buffer++])));
        CU(cuLaunchKernel(
            ready.kernel, unsigned(work.blocks[0]), unsigned(work.blocks[1]), 1, unsigned(work.threads[0]), unsigned(work.threads[1]), 1, 0,
            nullptr, arguments.data(), nullptr));
        CU(cuCtxSynchronize());
    }

    void read(const Ready &ready, size_t index, std::vector<uint32_t> &words) {
        CU(cuMemcpyDtoH(words.data(), ready.buffers[index], words.size() * 4));
    }
};

// Returns the greatest difference of two arrays, as floats or as integers, relative to the greatest value.
double difference(const std::vector<uint32_t> &left, const std::vector<uint32_t> &right, bool are_floats) {
    double most = 0, size = 1e-30;
    for (size_t index = 0; index < left.size(); index++) {
        float a, b;
        std::memcpy(&a, &left[index], 4);
        std::memcpy(&b, &right[index], 4);
        double x = are_floats ? double(a) : double(left[index]), y = are_floats ? double(b) : double(right[index]);
        most = std::max(most, std::fabs(x - y));
        size = std::max(size, std::fabs(x));
    }
    return most / size;
}

}  // namespace

int main(int count, char **arguments) {
    if (count < 4) {
        std::fprintf(stderr, "usage: compare KERNELS.CL PTX_FOLDER PTX_FOLDER [ROUNDS]\n");
        return 2;
    }
    int rounds = count > 4 ? std::atoi(arguments[4]) : 15;
    OpenCl opencl(read(arguments[1]));
    Cuda cuda({arguments[2], arguments[3]});
    std::printf("%-14s %6s %12s %12s %8s %12s\n", "kernel", "scale", "OpenCL, us", "CUDA, us", "speed", "difference");
    for (uint32_t scale : {1u, 4u, 16u}) {
        double product = 1;
        std::vector<Work> all = works(scale);
        for (const Work &work : all) {
            OpenCl::Ready left = opencl.prepare(work);
            Cuda::Ready right = cuda.prepare(work);
            opencl.run(work, left);
            cuda.run(work, right);
            double worst = 0;
            size_t buffer = 0;
            for (const Argument &argument : work.arguments) {
                if (argument.kind == Argument::Value)
                    continue;
                if (argument.kind == Argument::Out) {
                    std::vector<uint32_t> one(argument.words.size()), other(argument.words.size());
                    opencl.read(left, buffer, one);
                    cuda.read(right, buffer, other);
                    bool are_floats = std::strcmp(work.name, "histogram") != 0 && std::strcmp(work.name, "mandelbrot") != 0;
                    worst = std::max(worst, difference(one, other, are_floats));
                }
                buffer++;
            }
            double fastest[2] = {1e9, 1e9};
            for (int round = 0; round < rounds; round++) {
                fastest[0] = std::min(fastest[0], seconds([&] { opencl.run(work, left); }));
                fastest[1] = std::min(fastest[1], seconds([&] { cuda.run(work, right); }));
            }
            double speed = fastest[0] / fastest[1];
            product *= speed;
            std::printf("%-14s %6u %12.0f %12.0f %8.2f %12.1e\n", work.name, scale, fastest[0] * 1e6, fastest[1] * 1e6, speed, worst);
        }
        std::printf("%-14s %6u %34.2f\n", "geometric mean", scale, std::pow(product, 1.0 / double(all.size())));
    }
}
