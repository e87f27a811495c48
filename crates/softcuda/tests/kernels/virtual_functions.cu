// Objects with virtual functions, made in local memory by the lane's number.
// launch: virtual_functions grid 1 block 32
// arg: out f32 64

struct Shape {
    float size;
    __device__ Shape(float size) : size(size) {}
    __device__ virtual float area() const = 0;
    __device__ virtual float edge() const { return size; }
};
struct Square : Shape {
    __device__ Square(float size) : Shape(size) {}
    __device__ float area() const override { return size * size; }
    __device__ float edge() const override { return 4 * size; }
};
struct Disc : Shape {
    __device__ Disc(float size) : Shape(size) {}
    __device__ float area() const override { return 3.25f * size * size; }
};

__device__ __noinline__ float area_of(const Shape *shape) { return shape->area(); }
__device__ __noinline__ float edge_of(const Shape *shape) { return shape->edge(); }

extern "C" __global__ void virtual_functions(float *out) {
    unsigned i = threadIdx.x;
    Square square(i * 0.5f);
    Disc disc(i * 0.25f);
    const Shape *shape = i % 3 ? (const Shape *)&square : &disc;
    out[i] = area_of(shape);
    out[32 + i] = edge_of(shape);
}
