"""The models: one small shape per family, chosen so that every feature changes the logits visibly.

config     constructor arguments in the older spelling of published checkpoints
init       departures from the defaults of generate.fill
mistakes   what an engine might get wrong, as changes of config.json (in transformers' spelling; rope_parameters without
           rope_type are merged), or "zero" / "one" with a pattern of parameters to overwrite. Each must move the fp32
           logits beyond the bf16 bound, those in small_mistakes beyond the fp32 bound.
"""
SMALL = dict(vocab_size=320, num_hidden_layers=3, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
             hidden_act="silu", rms_norm_eps=1e-6)
LATENT = SMALL | dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=4,
                      q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
                      rope_theta=10000.0, first_k_dense_replace=1, moe_layer_freq=1, n_routed_experts=12,
                      num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=32, n_group=4, topk_group=2,
                      attention_bias=False, tie_word_embeddings=False)
YARN = dict(factor=8.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1)

MODELS = [
    dict(name="deepseek_v2", arch="DeepseekV2ForCausalLM", model_type="deepseek_v2", dtype="bfloat16", seed=2101,
         about="DeepSeek-V2: query latents, 3 experts of the 2 best of 4 groups, their weights times 1.5; yarn with another mscale than mscale_all_dim",
         init=dict(echo=3.0, qk=1.2),
         config=LATENT | dict(topk_method="group_limited_greedy", norm_topk_prob=False, scoring_func="softmax",
                              routed_scaling_factor=1.5,
                              rope_scaling=dict(type="yarn", mscale=1.4, mscale_all_dim=0.707) | YARN),
         mistakes={"plain greedy": {"topk_method": "greedy"}, "three groups": {"topk_group": 3},
                   "no scaling factor": {"routed_scaling_factor": 1.0},
                   "no query norm": {"one": r"q_a_layernorm"},
                   "no mscale": {"rope_parameters": {
                       "rope_type": "yarn", "rope_theta": 10000.0, "attention_factor": 1.0} | YARN},
                   "mscale as mscale_all_dim": {"rope_parameters": {
                       "rope_type": "yarn", "rope_theta": 10000.0, "mscale": 1.4, "mscale_all_dim": 1.4} | YARN}}),

    dict(name="deepseek_v3", arch="DeepseekV3ForCausalLM", model_type="deepseek_v3", dtype="bfloat16", seed=2201,
         about="DeepSeek-V3: query latents, experts by sigmoid scores and a correction bias within the 2 best of 4 groups, weights normalised, times 1.5",
         init=dict(echo=3.0, qk=1.2),
         config=LATENT | dict(topk_method="noaux_tc", norm_topk_prob=True, scoring_func="sigmoid",
                              routed_scaling_factor=1.5, num_nextn_predict_layers=0,
                              rope_scaling=dict(type="yarn", mscale=1.0, mscale_all_dim=1.0) | YARN),
         mistakes={"three groups": {"topk_group": 3}, "not normalised": {"norm_topk_prob": False},
                   "no scaling factor": {"routed_scaling_factor": 1.0}, "no correction": {"zero": r"e_score_correction_bias"},
                   "no query norm": {"one": r"q_a_layernorm"}}),

    dict(name="qwen2_layers", arch="Qwen2ForCausalLM", model_type="qwen2", dtype="bfloat16", seed=2301,
         about="Qwen2 with layer_types: a window of 24 tokens in layers 0 and 2, whatever max_window_layers says",
         init=dict(echo=1.5),
         config=SMALL | dict(hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
                             rope_theta=1000000.0, use_sliding_window=True, sliding_window=24, max_window_layers=1,
                             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                             tie_word_embeddings=False),
         mistakes={"window 23": {"sliding_window": 23}, "window 25": {"sliding_window": 25},
                   "by max_window_layers": {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
                   "no window": {"layer_types": ["full_attention"] * 3}}),

    dict(name="qwen3_layers", arch="Qwen3ForCausalLM", model_type="qwen3", dtype="bfloat16", seed=2401,
         about="Qwen3 whose older spelling has use_sliding_window and max_window_layers: a window of 40 tokens from layer 1 on; layer_types says it in the new one",
         init=dict(echo=1.5),
         config=SMALL | dict(hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
                             head_dim=32, rope_theta=1000000.0, use_sliding_window=True, sliding_window=40,
                             max_window_layers=1, attention_bias=False, tie_word_embeddings=False),
         mistakes={"window 39": {"sliding_window": 39}, "window 41": {"sliding_window": 41},
                   "all layers": {"layer_types": ["sliding_attention"] * 3},
                   "no window": {"layer_types": ["full_attention"] * 3}}),
]
