/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#pragma once
#include <rmm_error.hpp>
