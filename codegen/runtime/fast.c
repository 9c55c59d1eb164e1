#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define ROWS (TOKENS - FIRST)
#define FEW (TOKENS <= 4)

/* Loops over few tokens are written out, without which the loop over the nodes around them is not vectorised. */
#if FEW && defined(__GNUC__)
#define WRITTEN_OUT _Pragma("GCC unroll 16")
#else
#define WRITTEN_OUT
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(NO_VECTOR_MATH)
extern double exp(double) __attribute__((simd("notinbranch"), const, nothrow));
extern double log(double) __attribute__((simd("notinbranch"), const, nothrow));
extern double sin(double) __attribute__((simd("notinbranch"), const, nothrow));
extern double cos(double) __attribute__((simd("notinbranch"), const, nothrow));
#endif

INLINE double greater(double a, double b) { return a > b ? a : b; }
INLINE double smaller(double a, double b) { return a < b ? a : b; }
INLINE double square(double a) { return a*a; }
INLINE double step(double a) { return a > 0.0 ? 1.0 : 0.0; }
INLINE double sign(double a) { return a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0; }
INLINE double sigmoid(double a)
{
    const double e = exp(-fabs(a));
    return (a >= 0.0 ? 1.0 : e)/(1.0 + e);
}
INLINE double softplus(double a) { return greater(a, 0.0) + log1p(exp(-fabs(a))); }
INLINE double softplus_mantissa(double a)
{
    const double below = smaller(greater(a, -690.0), 0.0);
    return greater(a, 0.0) + log1p(exp(-smaller(fabs(a), 690.0)))*exp(-below);
}

/* kernels */

/* L D L^T of a symmetric matrix in place, pivots floored to max(|pivot|, floor) where there is a floor. */
INLINE void factored(int size, double *restrict a, double *restrict pivots, double least)
{
    for (int j = 0; j < size; j++) {
        const double pivot = least > 0.0 ? greater(fabs(a[j*size + j]), least) : a[j*size + j];
        const double safe = pivot == 0.0 ? 1e-300 : pivot;
        pivots[j] = pivot;
        for (int i = j + 1; i < size; i++) {
            const double ratio = a[j*size + i]/safe;
            for (int m = i; m < size; m++) a[i*size + m] -= ratio*a[j*size + m];
        }
        for (int i = j + 1; i < size; i++) a[i*size + j] = a[j*size + i]/safe;
    }
}

/* Its pivots alone; of few rows in loops with constant bounds, which can be written out. */
INLINE void pivots_of(const int size, double *restrict a, double *restrict pivots)
{
    if (!FEW) {
        factored(size, a, pivots, 0.0);
        return;
    }
    WRITTEN_OUT for (int j = 0; j < size; j++) {
        const double safe = a[j*size + j] == 0.0 ? 1e-300 : a[j*size + j];
        pivots[j] = a[j*size + j];
        WRITTEN_OUT for (int i = 1; i < size; i++)
            WRITTEN_OUT for (int m = 1; m < size; m++)
                if (i > j && m >= i) a[i*size + m] -= a[j*size + i]/safe*a[j*size + m];
    }
}

/* Nodes in the prox point: see the class ProxFreeChannel of the NumPy module, whose blocks these loops replace. */
typedef struct {
    long n, stride;
    const double *zeta, *weights, *center, *scale, *origin, *span, *value_factor, *pull, *score_factor, *params;
    double v_k, v_v, volume;
    int score, value;
} ProxFree;

INLINE void prox_free_loop(const ProxFree *restrict p, double *restrict totals, const int score, const int value)
{
    double e[MOMENTS], loss_sum = 0.0, residual_sum = 0.0, mass = 0.0, folded = 0.0;
    for (int k = 0; k < MOMENTS; k++) e[k] = 0.0;
    const double *restrict zeta = p->zeta;
    const double *restrict node_weights = p->weights;
    double center[TOKENS], scale[TOKENS], origin[TOKENS], span[TOKENS*TOKENS], factor[TOKENS*TOKENS];
    double pull[TOKENS*TOKENS], values[(TOKENS + 1)*(TOKENS + 1)];
    memcpy(center, p->center, score*sizeof(double));
    memcpy(scale, p->scale, score*sizeof(double));
    memcpy(origin, p->origin, TOKENS*sizeof(double));
    memcpy(span, p->span, TOKENS*score*sizeof(double));
    memcpy(factor, p->score_factor, TOKENS*score*sizeof(double));
    memcpy(pull, p->pull, score*ROWS*sizeof(double));
    memcpy(values, p->value_factor, (TOKENS + 1)*value*sizeof(double));
    const double v_k = p->v_k, v_v = p->v_v, volume = p->volume, off = FIRST ? -1.0/TOKENS : 0.0;
    const double *restrict params = p->params;
    const long stride = p->stride;
    #pragma omp simd reduction(+:e[:MOMENTS], loss_sum, residual_sum, mass, folded)
    for (long i = 0; i < p->n; i++) {
        double u[TOKENS], chi[TOKENS], w_z[TOKENS + 1], d_chi[TOKENS], tau[TOKENS], g_chi[TOKENS], g_z[TOKENS];
        double loss_value, slope[ROWS + 1], sigmas[TOKENS], gain, residual_loss, curvature[ROWS*ROWS + 1], pivots[ROWS + 1];
        double exponent = 0.0;
        WRITTEN_OUT for (int a = 0; a < score; a++) {
            u[a] = center[a] + scale[a]*zeta[a*stride + i];
        }
        WRITTEN_OUT for (int l = 0; l < TOKENS; l++) {
            chi[l] = origin[l];
            WRITTEN_OUT for (int a = 0; a < score; a++) chi[l] += span[l*score + a]*u[a];
        }
        WRITTEN_OUT for (int l = 0; l < TOKENS + 1; l++) {
            w_z[l] = 0.0;
            WRITTEN_OUT for (int b = 0; b < value; b++) w_z[l] += values[l*value + b]*zeta[(score + b)*stride + i];
        }
        expansion_at(chi, w_z, w_z[TOKENS], v_v, params, &loss_value, slope, sigmas, &gain, &residual_loss, curvature);
        WRITTEN_OUT for (int a = 0; a < score; a++) {
            double moved = 0.0;
            WRITTEN_OUT for (int l = 0; l < ROWS; l++) moved += pull[a*ROWS + l]*slope[l];
            tau[a] = u[a] + v_k*moved;
            exponent -= tau[a]*tau[a];
        }
        WRITTEN_OUT for (int l = 0; l < TOKENS; l++) {
            d_chi[l] = 0.0;
            WRITTEN_OUT for (int a = 0; a < score; a++) d_chi[l] += factor[l*score + a]*tau[a];
        }
        WRITTEN_OUT for (int l = 0; l < ROWS; l++)
            WRITTEN_OUT for (int m = 0; m < ROWS; m++) curvature[l*ROWS + m] = v_k*curvature[l*ROWS + m] + off + (l == m ? 1.0 : 0.0);
        pivots_of(ROWS, curvature, pivots);
        double determinant = volume, least = INFINITY;
        WRITTEN_OUT for (int l = 0; l < ROWS; l++) {
            determinant *= pivots[l];
            least = smaller(least, pivots[l]);
        }
        const double weight = node_weights[i]*exp(0.5*exponent)*determinant;
        if (FIRST) g_chi[0] = 0.0;
        WRITTEN_OUT for (int l = 0; l < ROWS; l++) {
            g_chi[l + FIRST] = -slope[l];
            if (FIRST) g_chi[0] += slope[l];
        }
        WRITTEN_OUT for (int l = 0; l < TOKENS; l++) g_z[l] = gain*sigmas[l];
        add_moments(weight, d_chi, w_z, g_chi, g_z, w_z[TOKENS], e);
        loss_sum += weight*loss_value;
        residual_sum += weight*residual_loss;
        mass += weight;
        folded += least > 0.0 ? 0.0 : fabs(weight);
    }
    for (int k = 0; k < MOMENTS; k++) totals[k] = e[k];
    totals[MOMENTS] = loss_sum;
    totals[MOMENTS + 1] = residual_sum;
    totals[MOMENTS + 2] = mass;
    totals[MOMENTS + 3] = folded;
}

void prox_free(const ProxFree *p, double *totals)
{
    if (p->score == ROWS && p->value == TOKENS) prox_free_loop(p, totals, ROWS, TOKENS);
    else prox_free_loop(p, totals, ROWS, TOKENS + 1);
}

/* The prox: see _prox_block of the NumPy module, which this replaces, sample by sample. */
typedef struct {
    int steps;
    double step_tolerance, newton_tolerance, trusted_step, trusted_pivot, smallest_pivot;
} Newton;

static double objective_at(const double *chi, const double *w_chi, const double *w_z, double y, double v_k, double v_v, const double *params)
{
    double value, far = 0.0;
    loss_at(chi, w_z, y, v_v, params, &value);
    for (int l = 0; l < TOKENS; l++) far += square(chi[l] - w_chi[l]);
    value += far/(2.0*v_k);
    return isnan(value) ? INFINITY : value;
}

/* The step that the whole Hessian gives, its pivots floored, and the least of them. */
static double factored_step(const double *chi, const double *w_chi, const double *w_z, double y, double v_k, double v_v, const double *params, double floor, double *slope, double *move)
{
    double value, least = INFINITY, a[TOKENS*TOKENS], pivots[TOKENS];
    hessian_at(chi, w_z, y, v_v, params, &value, slope, a);
    for (int l = 0; l < TOKENS; l++) {
        slope[l] = chi[l] - w_chi[l] + v_k*slope[l];
        for (int m = 0; m < TOKENS; m++) a[l*TOKENS + m] = v_k*a[l*TOKENS + m] + (l == m ? 1.0 : 0.0);
    }
    factored(TOKENS, a, pivots, floor);
    for (int l = 0; l < TOKENS; l++) {
        move[l] = -slope[l];
        for (int m = 0; m < l; m++) move[l] -= a[l*TOKENS + m]*move[m];
    }
    for (int l = TOKENS - 1; l >= 0; l--) {
        move[l] /= pivots[l];
        for (int m = l + 1; m < TOKENS; m++) move[l] -= a[m*TOKENS + l]*move[m];
        least = smaller(pivots[l], least);
    }
    return least;
}

#ifdef RANK
/* The same by Woodbury's formula; the lower bound on the eigenvalues is that of the part lowrank.py, 0 where there is none. */
static double woodbury_step(const double *chi, const double *w_chi, const double *w_z, double y, double v_k, double v_v, const double *params, double *slope, double *move)
{
    double value, parts[(1 + 2*RANK)*TOKENS], inverse[TOKENS], core[RANK][RANK], k[RANK][RANK], power[RANK][RANK], next[RANK][RANK];
    const double *left = parts + TOKENS, *right = parts + (1 + RANK)*TOKENS;
    hessian_factors_at(chi, w_z, y, v_v, params, &value, slope, parts);
    double least = INFINITY;
    for (int l = 0; l < TOKENS; l++) {
        const double d = 1.0 + v_k*parts[l];
        least = smaller(least, d);
        inverse[l] = 1.0/d;
        slope[l] = chi[l] - w_chi[l] + v_k*slope[l];
        move[l] = -slope[l]*inverse[l];
    }
    if (!(least > 0.0)) return 0.0;
    double inner[RANK], e[RANK + 1], sums[RANK + 1];
    for (int p = 0; p < RANK; p++) {
        inner[p] = 0.0;
        for (int l = 0; l < TOKENS; l++) inner[p] += right[p*TOKENS + l]*move[l];
        for (int q = 0; q < RANK; q++) {
            double total = 0.0;
            for (int l = 0; l < TOKENS; l++) total += right[p*TOKENS + l]*inverse[l]*left[q*TOKENS + l];
            core[p][q] = k[p][q] = power[p][q] = v_k*total + (p == q ? 1.0 : 0.0);
        }
    }
    e[0] = 1.0;
    for (int n = 1; n <= RANK; n++) {
        sums[n] = e[n] = 0.0;
        for (int p = 0; p < RANK; p++) sums[n] += power[p][p];
        for (int i = 1; i <= n; i++) e[n] += (i % 2 ? 1.0 : -1.0)*e[n - i]*sums[i]/n;
        if (!(e[n] > 0.0)) return 0.0;
        for (int p = 0; p < RANK; p++) for (int q = 0; q < RANK; q++) {
            next[p][q] = 0.0;
            for (int r = 0; r < RANK; r++) next[p][q] += power[p][r]*core[r][q];
        }
        memcpy(power, next, sizeof power);
    }
    for (int j = 0; j < RANK; j++) {
        const double pivot = k[j][j];
        if (!(fabs(pivot) > 1e-4)) return 0.0;
        k[j][j] = 1.0;
        for (int q = 0; q < RANK; q++) k[j][q] /= pivot;
        for (int i = 0; i < RANK; i++) if (i != j) {
            const double ratio = k[i][j];
            k[i][j] = 0.0;
            for (int q = 0; q < RANK; q++) k[i][q] -= ratio*k[j][q];
        }
    }
    double total = 0.0;
    for (int p = 0; p < RANK; p++) for (int q = 0; q < RANK; q++) {
        next[p][q] = 0.0;
        for (int r = 0; r < RANK; r++) next[p][q] += k[p][r]*k[r][q];
    }
    for (int p = 0; p < RANK; p++) for (int q = 0; q < RANK; q++) total += next[p][q]*next[q][p];
    for (int p = 0; p < RANK; p++) {
        double turned = 0.0;
        for (int q = 0; q < RANK; q++) turned += k[p][q]*inner[q];
        for (int l = 0; l < TOKENS; l++) move[l] -= v_k*inverse[l]*left[p*TOKENS + l]*turned;
    }
    return total > 0.0 ? least/sqrt(sqrt(total)) : 0.0;
}
#endif

static int prox_at(double *chi, const double *w_chi, const double *w_z, double y, double v_k, double v_v, const double *params, const Newton *how)
{
    double slope[TOKENS], move[TOKENS], trial[TOKENS];
    for (int count = 0; count < how->steps; count++) {
        double least = 0.0;
#ifdef RANK
        least = woodbury_step(chi, w_chi, w_z, y, v_k, v_v, params, slope, move);
#endif
        if (!(least >= how->trusted_pivot)) least = factored_step(chi, w_chi, w_z, y, v_k, v_v, params, how->smallest_pivot, slope, move);
        int finite = 1;
        for (int l = 0; l < TOKENS; l++) finite &= isfinite(move[l]) != 0;
        double size = 0.0, reach = 0.0;
        for (int l = 0; l < TOKENS; l++) {
            if (!finite) move[l] = 0.5*(w_chi[l] - chi[l]);
            size = greater(fabs(move[l]), size);
            reach = greater(fabs(chi[l]), reach);
        }
        if (size > how->trusted_step || least < how->trusted_pivot) {
            const double before = objective_at(chi, w_chi, w_z, y, v_k, v_v, params);
            double descent = 0.0;
            for (int l = 0; l < TOKENS; l++) descent += slope[l]*move[l]/v_k;
            for (int half = 0; half < 40; half++) {
                for (int l = 0; l < TOKENS; l++) trial[l] = chi[l] + move[l];
                const double after = objective_at(trial, w_chi, w_z, y, v_k, v_v, params);
                if (after <= before + 1e-4*descent + 1e-14*fabs(before)) break;
                for (int l = 0; l < TOKENS; l++) move[l] *= 0.5;
                descent *= 0.5;
            }
        }
        for (int l = 0; l < TOKENS; l++) chi[l] += move[l];
        const double enough = least >= how->trusted_pivot ? how->newton_tolerance : how->step_tolerance;
        if (!(size > enough*(1.0 + reach))) return 0;
    }
    return 1;
}

long prox_block(long n, double *chi, const double *w_chi, const double *w_z, const double *y, double v_k, double v_v, const double *params, const Newton *how)
{
    long failed = 0;
    for (long i = 0; i < n; i++) {
        double point[TOKENS], at_chi[TOKENS], at_z[TOKENS];
        for (int l = 0; l < TOKENS; l++) {
            point[l] = chi[l*n + i];
            at_chi[l] = w_chi[l*n + i];
            at_z[l] = w_z[l*n + i];
        }
        failed += prox_at(point, at_chi, at_z, y[i], v_k, v_v, params, how);
        for (int l = 0; l < TOKENS; l++) chi[l*n + i] = point[l];
    }
    return failed;
}
