// Array::wrap of types with data() and size(): a user-defined container, and Eigen's matrices with their storage order.
#include <onepass/onepass.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#define ONEPASS_HAVE_EIGEN 1
#endif

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

using Integers = std::vector<std::int64_t>;
Integers list(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

// Container without iterators and other members that std::span requires.
template <class T> class Buffer {
 public:
  explicit Buffer(std::vector<T> values) : values_(std::move(values)) {}
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  unsigned size() const { return static_cast<unsigned>(values_.size()); }

 private:
  std::vector<T> values_;
};

template <class R>
concept Wraps = requires(R&& r) { Array::wrap(std::forward<R>(r)); };
static_assert(Wraps<Buffer<float>&> && Wraps<const Buffer<float>&> && !Wraps<Buffer<float>>);
static_assert(Wraps<std::vector<float>&> && !Wraps<std::vector<float>> && Wraps<std::span<float>>);
static_assert(!Wraps<std::vector<bool>&> && !Wraps<Array&>);

}  // namespace

TEST_CASE("wrap: types with data() and size()") {
  Buffer<float> buffer({1, 2, 3, 4, 5, 6});
  const Array x = Array::wrap(buffer);
  CHECK(x.data() == buffer.data());
  CHECK(list(x.shape()) == Integers{6});
  CHECK(!x.is_read_only());
  const Array y = Array::wrap(buffer, {2, 3});
  CHECK(y.at<float>({1, 0}) == 4);
  CHECK_THROWS_AS(Array::wrap(buffer, {4, 2}), op::ShapeError);
  CHECK(Array::wrap(buffer, {3}, {-2}, 5).to_vector<float>() == std::vector<float>{6, 4, 2});
  const Buffer<float>& constant = buffer;
  CHECK(Array::wrap(constant).is_read_only());

  const auto twice = op::compile([](Tensor a) { return a * 2; });
  twice.into(x)(x);
  CHECK(buffer.data()[5] == 12);
}

#ifdef ONEPASS_HAVE_EIGEN

namespace {
template <class M> void check_matrix(M& m) {
  const Array x = Array::wrap(m);
  CHECK(static_cast<const void*>(m.data()) == x.data());
  REQUIRE(list(x.shape()) == Integers{m.rows(), m.cols()});
  for (int i = 0; i < m.rows(); ++i)
    for (int j = 0; j < m.cols(); ++j) CHECK(x.at<typename M::Scalar>({i, j}) == m(i, j));
}
template <class M> M counting(int rows, int cols) {
  M m(rows, cols);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) m(i, j) = static_cast<typename M::Scalar>(10 * i + j);
  return m;
}
}  // namespace

TEST_CASE("wrap: Eigen's matrices, vectors, maps and blocks") {
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  auto columns = counting<Eigen::MatrixXd>(3, 4);
  auto rows = counting<RowMajor>(3, 4);
  auto fixed = counting<Eigen::Matrix<int, 2, 5>>(2, 5);
  auto array = counting<Eigen::ArrayXXf>(4, 2);
  check_matrix(columns);
  check_matrix(rows);
  check_matrix(fixed);
  check_matrix(array);
  CHECK(list(Array::wrap(columns).strides()) == Integers{1, 3});
  CHECK(list(Array::wrap(rows).strides()) == Integers{4, 1});
  CHECK(Array::wrap(rows).is_contiguous());
  CHECK(!Array::wrap(columns).is_read_only());
  const Eigen::MatrixXd& constant = columns;
  check_matrix(constant);
  CHECK(Array::wrap(constant).is_read_only());

  auto block = columns.block(1, 1, 2, 3);
  check_matrix(block);
  Eigen::Map<Eigen::MatrixXd, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> every_second(columns.data(), 2, 2, {6, 2});
  check_matrix(every_second);
  Eigen::Ref<Eigen::MatrixXd> reference(columns);
  check_matrix(reference);

  Eigen::VectorXf vector = Eigen::VectorXf::LinSpaced(6, 1, 6);
  CHECK(Array::wrap(vector).to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(list(Array::wrap(vector, {2, 3}).shape()) == Integers{2, 3});
  Eigen::RowVector3d row(1, 2, 3);
  CHECK(list(Array::wrap(row).shape()) == Integers{3});
  auto column = columns.row(1);  // strided
  CHECK(Array::wrap(column).to_vector<double>() == std::vector<double>{10, 11, 12, 13});
  Eigen::MatrixXd none(0, 4);
  CHECK(list(Array::wrap(none).shape()) == Integers{0, 4});
}

TEST_CASE("wrap: a function of Eigen's matrices, with a matrix as destination") {
  Eigen::MatrixXd a = counting<Eigen::MatrixXd>(3, 4), b = counting<Eigen::MatrixXd>(4, 3), c(3, 3), sums(3, 3);
  const auto f = op::compile([](Tensor x, Tensor y) {
    return std::pair{matmul(x, y), x[{op::All, op::Range{0, 3}}] + y[op::Range{0, 3}]};
  });
  f.into(Array::wrap(c), Array::wrap(sums))(Array::wrap(a), Array::wrap(b));
  CHECK(c == a * b);
  CHECK(sums == a.leftCols(3) + b.topRows(3));
}

#else

TEST_CASE("wrap: Eigen's matrices") { WARN("skipped: Eigen/Core is not installed (Debian: libeigen3-dev)"); }

#endif
