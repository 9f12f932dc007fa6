package main

func storageKinds() []kind {
	return []kind{
		{
			name: "aws_s3_bucket",
			attributes: attributes{
				"id": computed(), "arn": computed(), "region": computed(), "hosted_zone_id": computed(),
				"bucket_domain_name": computed(), "bucket_regional_domain_name": computed(),
				"bucket": naming(), "force_destroy": truth(), "tags": tags(),
			},
			id: by("bucket"),
			computed: func(_ map[string]any, id, region string) map[string]any {
				return map[string]any{
					"arn": "arn:aws:s3:::" + id, "region": region, "hosted_zone_id": "Z3AQBSTGFYJSTF",
					"bucket_domain_name": id + ".s3.amazonaws.com", "bucket_regional_domain_name": id + ".s3." + region + ".amazonaws.com",
				}
			},
		},
		{
			name:       "aws_s3_bucket_versioning",
			attributes: attributes{"id": computed(), "bucket": naming()},
			blocks:     blocks{"versioning_configuration": block(attributes{"status": text(), "mfa_delete": text()}, nil)},
			id:         by("bucket"),
		},
		{
			name:       "aws_s3_bucket_server_side_encryption_configuration",
			attributes: attributes{"id": computed(), "bucket": naming()},
			blocks: blocks{"rule": block(attributes{"bucket_key_enabled": truth()}, blocks{
				"apply_server_side_encryption_by_default": block(attributes{"sse_algorithm": text(), "kms_master_key_id": text()}, nil),
			})},
			id: by("bucket"),
		},
		{
			name: "aws_s3_bucket_public_access_block",
			attributes: attributes{
				"id": computed(), "bucket": naming(),
				"block_public_acls": truth(), "block_public_policy": truth(), "ignore_public_acls": truth(), "restrict_public_buckets": truth(),
			},
			id: by("bucket"),
		},
	}
}
