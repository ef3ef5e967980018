/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#pragma once

#include <cuda_runtime_api.h>

namespace rmm {

class cuda_stream_view {
	cudaStream_t stream = nullptr;

public:
	cuda_stream_view() = default;
	cuda_stream_view(cudaStream_t s) : stream(s) {}
	cudaStream_t value() const { return stream; }
};

} // namespace rmm
