// RAII over the part of XGBoost's C interface that the cost model needs: a dense matrix and a
// booster that is fed our own gradients (XGBoosterBoostOneIter), because its built-in ranking
// objective draws one pair per row. booster.cc is the only file that includes that interface.
// Threads: every call runs on the calling thread (nthread=1; more threads spin against each other
// on a busy machine and cost 100 times the work). Objects are movable, not shared between threads.
// Determinism: same parameters, rows and gradients give the same trees.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/support/status.h"

namespace whet::model {

// Row-major dense features; NaN means missing.
class Matrix {
 public:
  static StatusOr<Matrix> Make(std::span<const float> values, int64_t rows, int64_t cols);
  Matrix(Matrix&& o) noexcept : handle_(o.handle_), rows_(o.rows_) { o.handle_ = nullptr; }
  Matrix& operator=(Matrix&&) = delete;
  ~Matrix();
  int64_t rows() const { return rows_; }

 private:
  friend class Booster;
  Matrix(void* handle, int64_t rows) : handle_(handle), rows_(rows) {}
  void* handle_;
  int64_t rows_;
};

struct BoosterParams {
  int max_depth = 6;
  int max_bin = 64;
  double eta = 0.15;
  double min_child_weight = 1;
  double subsample = 0.8;
  double colsample_bytree = 0.6;
  double lambda = 1;
  uint64_t seed = 0;
};

class Booster {
 public:
  // `train` must outlive the training of this booster; predictions of it are cached between rounds.
  static StatusOr<Booster> Make(const BoosterParams& params, const Matrix& train);
  static StatusOr<Booster> Load(std::string_view bytes);
  Booster(Booster&& o) noexcept : handle_(o.handle_) { o.handle_ = nullptr; }
  Booster& operator=(Booster&& o) noexcept;
  ~Booster();

  // Adds one tree that descends the given gradient (one value per row of `train`).
  Status BoostOneRound(const Matrix& train, std::span<float> grad, std::span<float> hess);
  // The sum of the trees, without any base score.
  StatusOr<std::vector<float>> Predict(const Matrix& rows) const;
  StatusOr<std::string> Save() const;

 private:
  explicit Booster(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace whet::model
