/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#pragma once
#include <rmm_error.hpp>
