// All of onepass.
#pragma once

#include "onepass/array.h"
#include "onepass/compare.h"
#include "onepass/dtype.h"
#include "onepass/error.h"
#include "onepass/formula.h"
#include "onepass/function.h"
#include "onepass/gradient.h"
#include "onepass/graph_view.h"
#include "onepass/half.h"
#include "onepass/nest.h"
#include "onepass/npy.h"
#include "onepass/number.h"
#include "onepass/options.h"
#include "onepass/runtime.h"
#include "onepass/tensor.h"
#include "onepass/version.h"
