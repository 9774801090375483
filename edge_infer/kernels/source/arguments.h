/* Made by edge_infer/kernels/build.py from declarations.py. */
#pragma once
#include <stdint.h>
#define KERNELS_ABI 3
struct convolution_int8_arguments { int32_t input, weights, bias, multipliers, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, input_zero, output_zero, low, high, weights_zero; };
struct convolution_int8_fixed_arguments { int32_t input, weights, bias, multipliers, shifts, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, input_zero, output_zero, low, high, weights_zero, single; };
struct depthwise_int8_arguments { int32_t input, weights, bias, multipliers, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, input_zero, output_zero, low, high, weights_zero; };
struct depthwise_int8_fixed_arguments { int32_t input, weights, bias, multipliers, shifts, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, input_zero, output_zero, low, high, weights_zero; };
struct convolution_hybrid_arguments { int32_t input, weights, bias, multipliers, parameters, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left; float low, high; };
struct convolution_float_arguments { int32_t input, weights, bias, output, scratch, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left; float low, high; };
struct depthwise_float_arguments { int32_t input, weights, bias, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left; float low, high; };
struct average_pool_int8_arguments { int32_t input, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, low, high; };
struct average_pool_uint8_arguments { int32_t input, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, low, high; };
struct max_pool_int8_arguments { int32_t input, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left, low, high; };
struct average_pool_float_arguments { int32_t input, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left; float low, high; };
struct max_pool_float_arguments { int32_t input, output, batch, input_height, input_width, input_channels, output_height, output_width, output_channels, kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left; float low, high; };
struct mean_int8_arguments { int32_t input, output, outer, reduced, inner, input_zero, output_zero; float multiplier; };
struct mean_int8_fixed_arguments { int32_t input, output, outer, reduced, inner, input_zero, output_zero, multiplier, shift; };
struct mean_float_arguments { int32_t input, output, outer, reduced, inner; };
struct add_int8_arguments { int32_t first, second, output, size_0, size_1, size_2, size_3, first_0, first_1, first_2, first_3, second_0, second_1, second_2, second_3, first_multiplier, second_multiplier, bias, shift, output_zero, low, high; };
struct add_int8_fixed_arguments { int32_t first, second, output, size_0, size_1, size_2, size_3, first_0, first_1, first_2, first_3, second_0, second_1, second_2, second_3, first_zero, second_zero, output_zero, first_multiplier, first_shift, second_multiplier, second_shift, output_multiplier, output_shift, subtract, low, high; };
struct multiply_int8_arguments { int32_t first, second, output, size_0, size_1, size_2, size_3, first_0, first_1, first_2, first_3, second_0, second_1, second_2, second_3, first_zero, second_zero, output_zero, low, high; float multiplier; };
struct multiply_int8_fixed_arguments { int32_t first, second, output, size_0, size_1, size_2, size_3, first_0, first_1, first_2, first_3, second_0, second_1, second_2, second_3, first_zero, second_zero, output_zero, multiplier, shift, low, high; };
struct binary_float_arguments { int32_t first, second, output, size_0, size_1, size_2, size_3, first_0, first_1, first_2, first_3, second_0, second_1, second_2, second_3, operation; float low, high; };
struct unary_float_arguments { int32_t input, output, count, operation; float alpha, low, high; };
struct table_int8_arguments { int32_t input, output, table, count; };
struct softmax_int8_arguments { int32_t input, output, table, rows, columns, output_zero, output_bytes; float output_scale; };
struct softmax_int8_fixed_arguments { int32_t input, output, table, rows, columns, output_bytes; };
struct softmax_float_arguments { int32_t input, output, rows, columns, is_log; float beta; };
struct copy_arguments { int32_t input, output, size_0, size_1, size_2, size_3, size_4, input_0, input_1, input_2, input_3, input_4, output_0, output_1, output_2, output_3, output_4, block; };
struct fill_arguments { int32_t output, count, value, bytes; };
struct flip_sign_arguments { int32_t input, output, count; };
struct quantize_float_arguments { int32_t input, output, count, zero, low, high; float scale; };
struct quantize_float_fixed_arguments { int32_t input, output, count, zero, low, high; float scale; };
struct requantize_arguments { int32_t input, output, count, input_bytes, output_bytes, input_zero, output_zero, multiplier, shift, low, high; };
struct quantize_rows_arguments { int32_t input, output, parameters, rows, columns, kind, output_bytes; };
struct dequantize_int8_arguments { int32_t input, output, count, zero; float scale; };
struct resize_nearest_arguments { int32_t input, output, batch, input_height, input_width, channels, output_height, output_width, align_corners, half_pixel_centers, element_bytes; };
struct resize_bilinear_float_arguments { int32_t input, output, batch, input_height, input_width, channels, output_height, output_width, align_corners, half_pixel_centers; };
struct resize_bilinear_int8_arguments { int32_t input, output, batch, input_height, input_width, channels, output_height, output_width, align_corners, half_pixel_centers; };
struct resize_bilinear_int8_fixed_arguments { int32_t input, output, batch, input_height, input_width, channels, output_height, output_width, align_corners, half_pixel_centers; };
struct lstm_int8_arguments { int32_t input, output, hidden, cell, weights, recurrent, bias, recurrent_bias, scratch, batch, steps, inputs, cells, input_multiplier, input_shift, input_recurrent_multiplier, input_recurrent_shift, forget_multiplier, forget_shift, forget_recurrent_multiplier, forget_recurrent_shift, cell_multiplier, cell_shift, cell_recurrent_multiplier, cell_recurrent_shift, output_multiplier, output_shift, output_recurrent_multiplier, output_recurrent_shift, hidden_multiplier, hidden_shift, hidden_zero, cell_bits, clip; };
struct lstm_float_arguments { int32_t input, output, hidden, cell, weights, recurrent, bias, scratch, batch, steps, inputs, cells; float clip; };
struct svdf_int8_arguments { int32_t input, output, state, features, times, bias, batch, inputs, filters, rank, memory, input_zero, output_zero, state_zero, state_bytes, feature_multiplier, feature_shift, time_multiplier, time_shift; };
struct trees_arguments { int32_t input, output, nodes, votes, roots, base, scratch, rows, columns, targets, node_count, vote_count, trees; };
struct gather_arguments { int32_t input, positions, output, outer, rows, count, block; };
