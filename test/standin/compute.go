package main

import "strings"

func computeKinds() []kind {
	rule := block(attributes{
		"from_port": number(), "to_port": number(), "protocol": text(), "cidr_blocks": texts(), "description": text(),
	}, nil)
	return []kind{
		{
			name: "aws_security_group",
			attributes: attributes{
				"id": computed(), "arn": computed(), "name": computed(), "name_prefix": naming(), "description": text(), "tags": tags(),
			},
			blocks: blocks{"ingress": rule, "egress": rule},
			id:     numbered("sg-%017d"),
			computed: func(asked map[string]any, id, region string) map[string]any {
				prefix, _ := asked["name_prefix"].(string)
				return map[string]any{
					"arn":  "arn:aws:ec2:" + region + ":" + awsAccount + ":security-group/" + id,
					"name": prefix + strings.TrimPrefix(id, "sg-"),
				}
			},
		},
		{
			name: "aws_db_instance",
			attributes: attributes{
				"id": computed(), "arn": computed(), "endpoint": computed(), "address": computed(), "port": computedNumber(), "status": computed(),
				"identifier": naming(), "engine": text(), "engine_version": text(), "instance_class": text(),
				"allocated_storage": number(), "storage_type": text(), "storage_encrypted": truth(),
				"db_name": text(), "username": text(), "password": secret(), "vpc_security_group_ids": set(),
				"backup_retention_period": number(), "backup_window": text(), "maintenance_window": text(),
				"skip_final_snapshot": truth(), "final_snapshot_identifier": text(), "tags": tags(),
			},
			id: by("identifier"),
			computed: func(_ map[string]any, id, region string) map[string]any {
				host := id + ".c0ffee." + region + ".rds.amazonaws.com"
				return map[string]any{
					"arn":     "arn:aws:rds:" + region + ":" + awsAccount + ":db:" + id,
					"address": host, "endpoint": host + ":5432", "port": 5432, "status": "available",
				}
			},
		},
		distribution(),
	}
}

func distribution() kind {
	return kind{
		name: "aws_cloudfront_distribution",
		attributes: attributes{
			"id": computed(), "arn": computed(), "domain_name": computed(), "hosted_zone_id": computed(), "status": computed(),
			"enabled": truth(), "is_ipv6_enabled": truth(), "comment": text(), "default_root_object": text(), "tags": tags(),
		},
		blocks: blocks{
			"origin": block(attributes{"domain_name": text(), "origin_id": text()}, blocks{
				"custom_origin_config": block(attributes{
					"http_port": number(), "https_port": number(), "origin_protocol_policy": text(), "origin_ssl_protocols": set(),
				}, nil),
			}),
			"default_cache_behavior": block(attributes{
				"allowed_methods": set(), "cached_methods": set(), "target_origin_id": text(), "viewer_protocol_policy": text(),
				"min_ttl": number(), "default_ttl": number(), "max_ttl": number(), "compress": truth(),
			}, blocks{
				"forwarded_values": block(attributes{"query_string": truth()}, blocks{
					"cookies": block(attributes{"forward": text()}, nil),
				}),
			}),
			"restrictions": block(nil, blocks{
				"geo_restriction": block(attributes{"restriction_type": text(), "locations": set()}, nil),
			}),
			"viewer_certificate": block(attributes{"cloudfront_default_certificate": truth()}, nil),
			"logging_config":     block(attributes{"include_cookies": truth(), "bucket": text(), "prefix": text()}, nil),
		},
		id: numbered("E%013d"),
		computed: func(_ map[string]any, id, _ string) map[string]any {
			return map[string]any{
				"arn":         "arn:aws:cloudfront::" + awsAccount + ":distribution/" + id,
				"domain_name": strings.ToLower(id) + ".cloudfront.net", "hosted_zone_id": "Z2FDTNDATAQYW2", "status": "Deployed",
			}
		},
	}
}
