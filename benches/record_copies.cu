// Times copies between pinned host memory and the GPU: by number of pieces, by method, and with a kernel running.
//
//     nvcc -O3 -arch=sm_90 -o record_copies benches/record_copies.cu && ./record_copies > copies.csv
//
// A row: method (one call per copy, one call for all, or a kernel that reads and writes mapped memory), direction, bytes
// of a piece, pieces, time of the calls and until all copies have finished in us (medians of nine). The last columns are
// the slow-down in % of a kernel bound by memory and of a kernel bound by arithmetic while such copies run without pause.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#define OK(call)                                                                              \
    do {                                                                                      \
        cudaError_t e = (call);                                                               \
        if (e != cudaSuccess) {                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e));        \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

using Clock = std::chrono::steady_clock;
static double us_since(Clock::time_point t) {
    return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}
static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

__global__ void copy_pieces(char* const* to, const char* const* from, size_t bytes, size_t pieces) {
    for (size_t p = blockIdx.x; p < pieces; p += gridDim.x)
        for (size_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16)
            *(int4*)(to[p] + i) = *(const int4*)(from[p] + i);
}
__global__ void read_memory(const int4* from, size_t n, int* sink) {
    int4 sum{0, 0, 0, 0};
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        int4 v = __ldcs(from + i);
        sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678) *sink = 1;
}
__global__ void arithmetic(float* sink, int rounds) {
    float a = threadIdx.x, b = 1.0001f, c = 0.9999f, d = blockIdx.x;
    for (int i = 0; i < rounds; ++i) { a = a * b + c; d = d * c + b; b = b * c + a; c = c * b + d; }
    if (a + b + c + d == 42.0f) *sink = a;
}

struct Work {
    std::string how;
    bool to_gpu;
    size_t bytes, pieces;
    std::vector<char*> to;
    std::vector<const char*> from;
    char** to_there = nullptr;
    const char** from_there = nullptr;
    std::vector<size_t> sizes;

    void submit(cudaStream_t stream) {
        if (how == "one-by-one") {
            for (size_t p = 0; p < pieces; ++p)
                OK(cudaMemcpyAsync(to[p], from[p], bytes, to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
        } else if (how == "batched") {
            cudaMemcpyAttributes how_to{};
            how_to.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
            size_t first = 0;
#if CUDART_VERSION >= 13000
            OK(cudaMemcpyBatchAsync((const void* const*)to.data(), (const void* const*)from.data(), sizes.data(), pieces, &how_to, &first, 1, stream));
#else
            size_t failed = 0;
            OK(cudaMemcpyBatchAsync((void**)to.data(), (void**)from.data(), sizes.data(), pieces, &how_to, &first, 1, &failed, stream));
#endif
        } else {
            copy_pieces<<<16, 512, 0, stream>>>(to_there, from_there, bytes, pieces);
            OK(cudaGetLastError());
        }
    }
};

static Work make(const std::string& how, bool to_gpu, size_t bytes, size_t pieces, char* host, char* gpu, size_t room) {
    Work w{how, to_gpu, bytes, pieces};
    std::mt19937_64 draw(bytes * 31 + pieces);
    std::vector<size_t> places(room / bytes);
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    for (auto* base : {gpu, host}) {
        std::shuffle(places.begin(), places.end(), draw);
        for (size_t p = 0; p < pieces; ++p) {
            char* at = base + places[p] * bytes;
            if ((base == gpu) == to_gpu) w.to.push_back(at); else w.from.push_back(at);
        }
    }
    w.sizes.assign(pieces, bytes);
    OK(cudaMalloc(&w.to_there, pieces * sizeof(char*)));
    OK(cudaMalloc(&w.from_there, pieces * sizeof(char*)));
    OK(cudaMemcpy(w.to_there, w.to.data(), pieces * sizeof(char*), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(w.from_there, w.from.data(), pieces * sizeof(char*), cudaMemcpyHostToDevice));
    return w;
}

int main() {
    const size_t room = size_t(1) << 30, weights = size_t(8) << 30;
    char *host, *gpu;
    int4* read;
    int* sink;
    OK(cudaHostAlloc((void**)&host, room, cudaHostAllocMapped));
    OK(cudaMalloc(&gpu, room));
    OK(cudaMalloc(&read, weights));
    OK(cudaMalloc(&sink, 64));
    OK(cudaMemset(read, 7, weights));
    for (size_t i = 0; i < room; i += 4096) host[i] = (char)(i >> 12);
    cudaStream_t copies, steps;
    int least, most;
    OK(cudaDeviceGetStreamPriorityRange(&least, &most));
    OK(cudaStreamCreateWithPriority(&copies, cudaStreamNonBlocking, least));
    OK(cudaStreamCreateWithPriority(&steps, cudaStreamNonBlocking, most));
    auto step = [&](bool memory) {
        if (memory) read_memory<<<132 * 8, 512, 0, steps>>>(read, weights / 16, sink);
        else arithmetic<<<132 * 4, 512, 0, steps>>>((float*)sink, 400000);
        OK(cudaGetLastError());
        OK(cudaStreamSynchronize(steps));
    };
    auto timed = [&](bool memory) {
        std::vector<double> found;
        for (int i = 0; i < 15; ++i) { auto t = Clock::now(); step(memory); found.push_back(us_since(t)); }
        return median(found);
    };
    step(true); step(false);
    printf("how,direction,piece_bytes,pieces,submit_us,total_us,memory_step_us,memory_slower_percent,arithmetic_step_us,arithmetic_slower_percent\n");
    for (std::string how : {"one-by-one", "batched", "kernel"})
        for (bool to_gpu : {true, false})
            for (size_t kib : {4, 8, 16, 32, 64, 128, 512, 2048, 16384}) {
                size_t bytes = kib << 10, pieces = std::min<size_t>(8192, (size_t(256) << 20) / bytes);
                Work w = make(how, to_gpu, bytes, pieces, host, gpu, room);
                std::vector<double> submits, totals;
                for (int i = 0; i < 11; ++i) {
                    OK(cudaStreamSynchronize(copies));
                    auto t = Clock::now();
                    w.submit(copies);
                    double s = us_since(t);
                    OK(cudaStreamSynchronize(copies));
                    if (i > 1) { submits.push_back(s); totals.push_back(us_since(t)); }
                }
                double alone[2], beside[2];
                for (int memory = 0; memory < 2; ++memory) alone[memory] = timed(memory);
                std::atomic<bool> stop{false};
                std::atomic<long> rounds{0};
                std::thread sender([&] {
                    while (!stop) { w.submit(copies); OK(cudaStreamSynchronize(copies)); ++rounds; }
                });
                while (rounds < 2) std::this_thread::yield();
                for (int memory = 0; memory < 2; ++memory) beside[memory] = timed(memory);
                stop = true;
                sender.join();
                printf("%s,%s,%zu,%zu,%.1f,%.1f,%.1f,%.2f,%.1f,%.2f\n", how.c_str(), to_gpu ? "host->gpu" : "gpu->host", bytes, pieces,
                       median(submits), median(totals), alone[1], 100 * (beside[1] / alone[1] - 1), alone[0], 100 * (beside[0] / alone[0] - 1));
                fflush(stdout);
                OK(cudaFree(w.to_there));
                OK(cudaFree(w.from_there));
            }
    return 0;
}
