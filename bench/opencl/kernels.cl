// The kernels of ../../crates/ptx/benches/kernels, saxpy and matmul_tiled of ../../crates/softcuda/tests/kernels, in
// OpenCL C: the same algorithm with the same work for each thread.

kernel void saxpy(global float *y, global const float *x, float a, uint count) {
    uint i = get_global_id(0);
    if (i < count)
        y[i] = fma(a, x[i], y[i]);
}

kernel void reduction(global float *sums, global const float *values) {
    local float part[256];
    uint lane = get_local_id(0), threads = get_local_size(0);
    uint i = get_group_id(0) * threads * 4 + lane;
    part[lane] = values[i] + values[i + threads] + values[i + 2 * threads] + values[i + 3 * threads];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = threads / 2; half_size > 0; half_size /= 2) {
        if (lane < half_size)
            part[lane] += part[lane + half_size];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0)
        sums[get_group_id(0)] = part[0];
}

kernel void matmul_tiled(global float *c, global const float *a, global const float *b, int n) {
    local float left[16][16], right[16][16];
    int x = get_local_id(0), y = get_local_id(1);
    int row = get_group_id(1) * 16 + y, column = get_group_id(0) * 16 + x;
    float sum = 0;
    for (int tile = 0; tile < n; tile += 16) {
        left[y][x] = a[row * n + tile + x];
        right[y][x] = b[(tile + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++)
            sum = fma(left[y][k], right[k][x], sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}

float normal(float d) {
    float k = native_recip(fma(fabs(d), 0.2316419f, 1.0f));
    float density = native_exp2(-0.5f * d * d * 1.442695f) * 0.3989423f;
    float tail = k * fma(k, fma(k, fma(k, fma(k, 1.330274f, -1.821256f), 1.781478f), -0.3565638f), 0.3193815f) * density;
    return d > 0 ? 1.0f - tail : tail;
}

kernel void black_scholes(
    global float *calls,
    global float *puts,
    global const float *prices,
    global const float *strikes,
    global const float *years,
    float rate,
    float volatility,
    uint count
) {
    uint i = get_global_id(0);
    if (i >= count)
        return;
    float price = prices[i], strike = strikes[i], time = years[i];
    float spread = volatility * native_sqrt(time);
    float growth = fma(fma(volatility * 0.5f, volatility, rate), time, native_log2(native_divide(price, strike)) * 0.6931472f);
    float d1 = native_divide(growth, spread), d2 = d1 - spread;
    float n1 = normal(d1), n2 = normal(d2);
    float discounted = strike * native_exp2(-1.442695f * rate * time);
    calls[i] = fma(price, n1, -discounted * n2);
    puts[i] = fma(discounted, 1.0f - n2, -price * (1.0f - n1));
}

kernel void histogram(global const uint *words, global uint *counts, uint count) {
    local uint bins[256];
    uint lane = get_local_id(0);
    bins[lane] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < count; i += get_global_size(0))
        atomic_inc(&bins[words[i] * 2654435769u >> 24]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (bins[lane] != 0)
        atomic_add(&counts[lane], bins[lane]);
}

kernel void mandelbrot(global uint *image, uint side, float step) {
    uint x = get_global_id(0), y = get_global_id(1);
    float real = fma((float)x, step, -2.0f), imaginary = fma((float)y, step, -1.5f);
    float a = 0, b = 0;
    uint count = 0;
    while (count < 256) {
        float a2 = a * a, b2 = b * b;
        if (a2 + b2 > 4.0f)
            break;
        b = fma(a + a, b, imaginary);
        a = a2 - b2 + real;
        count++;
    }
    image[y * side + x] = count;
}

kernel void stencil(global const float *from, global float *to, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x == 0 || x >= width - 1 || y == 0 || y >= height - 1)
        return;
    global const float *at = from + y * width + x;
    float sum = at[-1] + at[1] + (at[-width] + at[width]);
    to[y * width + x] = fma(at[0], 0.5f, sum * 0.125f);
}
