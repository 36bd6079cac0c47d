package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A protocolRule says which words belong to one protocol, and where they may stand.
type protocolRule struct {
	name  string
	words *regexp.Regexp
	// allowed are the path prefixes that know the protocol.
	allowed []string
}

// citation is the section of a document that a comment implements. Documents are cited anywhere.
var citation = regexp.MustCompile(`PROTOCOL_V5 §[0-9.]+(, §[0-9.]+)*|Chiffon\s+§[\w ]+|Genesis §[\w’' -]+`)

// isPublicName reports whether a line describes a member or an operation of the public API, which
// names protocols to its users.
func isPublicName(line string) bool {
	return strings.HasPrefix(line, "//\t@") || strings.Contains(line, "`json:\"")
}

// protocolRules keeps the core free of protocols: a word of one stands only in its packages, in the
// composition root and among the settings of protocols.
func protocolRules() []protocolRule {
	return []protocolRule{{
		name:    "V5",
		words:   regexp.MustCompile(`PROTOCOL_V5|\bE[1-49][0-9]\b|\bV5\b|[a-z]V5|\bV5[A-Z]|\bv5\b|#REF|#CTX|ShortID|LoggedMessage|ContextName|WorkerNumber`),
		allowed: []string{"internal/protocol/v5/", "internal/wire/v5/", "internal/app/", "internal/config/protocols.go", "api/v5.go"},
	}, {
		name:    "envelope",
		words:   regexp.MustCompile(`work_request|work_status|work_result|from_agent|to_agent|x_custom_fields|Chiffon|\b500[1-6]\b|envelope\.v1`),
		allowed: []string{"internal/protocol/envelope/", "internal/wire/envelope/", "internal/app/", "agent/", "cmd/comet/send.go", "cmd/comet/worker.go"},
	}, {
		name:    "Genesis",
		words:   regexp.MustCompile(`[Gg]enesis|originalFrom|signatureJcs|allowPartialResponse|requiresAck|correlationId|deliveryGuarantee`),
		allowed: []string{"internal/protocol/genesis/", "internal/wire/genesis/", "internal/app/", "agent/genesis/", "cmd/comet/send.go", "cmd/comet/send_signed.go", "cmd/comet/commands.gen.go", "api/tokens.go"},
	}, {
		name:    "A2A",
		words:   regexp.MustCompile(`\bA2A\b|\ba2a\b|TASK_STATE_|ROLE_USER|contextId|messageId|agent-card`),
		allowed: []string{"internal/a2a/", "store/a2a/", "store/remotes/", "internal/app/", "internal/protocol/genesis/protocol.go", "webhooks/numbered.go", "webhooks/tasks.go", "api/router.go", "api/server.go", "api/workers.go", "cmd/comet/a2a.go"},
	}}
}

// checkProtocols counts, in each package outside of a protocol's own, the lines with its words.
func checkProtocols(t *tree) ([]finding, error) {
	var found []finding
	for _, rule := range protocolRules() {
		counts := map[string]int{}
		first := map[string]string{}
		for _, f := range t.production() {
			if hasPrefix(f, rule.allowed) {
				continue
			}
			text, err := t.read(f)
			if err != nil {
				return nil, err
			}
			for n, line := range strings.Split(text, "\n") {
				if strings.Contains(line, `"github.com/`) {
					continue // major version 5 of a library
				}
				if isPublicName(line) {
					continue
				}
				if rule.words.MatchString(citation.ReplaceAllString(line, "")) {
					p := folderOf(f)
					counts[p]++
					if first[p] == "" {
						first[p] = fmt.Sprintf("%s:%d", f, n+1)
					}
				}
			}
		}
		for _, p := range sortedKeys(counts) {
			found = append(found, t.over("protocols-"+rule.name, p, counts[p], 0, "lines with words of "+rule.name+", the first at "+first[p])...)
		}
	}
	return found, nil
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
