package app_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	genesiswire "comet/internal/wire/genesis"
)

// object is a message, or an object in it.
type object = map[string]any

// genesisServer is a server with the agents boss, who asks, and analyst, who works. Both sign their messages and need no token to
// send them.
type genesisServer struct {
	*client

	keys map[string]ed25519.PrivateKey
	// sessions are tokens of the agents, which analyst needs to poll.
	sessions map[string]string
	log      txtar.Archive
}

func openGenesis(t *testing.T, database string) *genesisServer {
	t.Helper()
	cfg := configured(t, database)
	a := started(t, cfg)
	t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
	g := &genesisServer{client: newClient(t, a.URL(), adminToken(t, cfg.Data)), keys: map[string]ed25519.PrivateKey{}, sessions: map[string]string{}}
	for name, capabilities := range map[string][]string{
		"boss": {}, "analyst": {"query_data", "analyze_data", "transform_data", "store_data", "retrieve_data", "send_notification"},
	} {
		key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(name[:1], ed25519.SeedSize)))
		public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		g.send(t, g.request("ops", "nova", "register_agent", object{"id": name, "publicKey": public, "signatureOnly": true, "capabilities": capabilities}))
		g.keys[name] = key
		_, answer := g.send(t, g.request(name, "nova", "authenticate", nil))
		g.sessions[name] = answer["data"].(object)["token"].(string)
	}
	g.inbox(t) // it joins
	return g
}

// message returns an unsigned message.
func (g *genesisServer) message(kind, from, to string, members object) object {
	m := object{"id": uuid.NewString(), "type": kind, "version": "1.0", "from": from, "to": to, "timestamp": time.Now().UnixMicro() * 1000}
	maps.Copy(m, members)
	return m
}

func (g *genesisServer) request(from, to, intent string, payload any) object {
	return g.message("REQUEST", from, to, object{"intent": intent, "confidence": 1, "entities": []any{}, "payload": payload, "context": object{}, "priority": "NORMAL", "options": object{}})
}

// sign signs a message with both profiles if its sender has a key. The message may be invalid.
func (g *genesisServer) sign(t *testing.T, m object) {
	t.Helper()
	from, _ := m["from"].(string)
	key := g.keys[from]
	if key == nil {
		return
	}
	m["publicKey"] = base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	parsed, _ := genesiswire.Parse(encoded(t, m))
	for name, form := range map[string]genesiswire.Form{"signature": genesiswire.AsSent, "signatureJcs": genesiswire.JCS} {
		text, err := parsed.Signed(form)
		require.NoError(t, err)
		m[name] = base64.StdEncoding.EncodeToString(ed25519.Sign(key, text))
	}
}

// send signs a message and returns the answer. Without a key the token of an administrator names the sender.
func (g *genesisServer) send(t *testing.T, m object, headers ...string) (status int, answer object) {
	t.Helper()
	g.sign(t, m)
	return g.post(t, m, headers...)
}

func (g *genesisServer) post(t *testing.T, m object, headers ...string) (status int, answer object) {
	t.Helper()
	if m["publicKey"] != nil {
		headers = append(headers, "Authorization", "")
	}
	status, body, err := g.do(t.Context(), http.MethodPost, "/api/genesis/messages", m, headers...)
	require.NoError(t, err)
	if len(body) > 0 {
		require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	}
	return status, answer
}

// inbox returns the messages for analyst.
func (g *genesisServer) inbox(t *testing.T) []object {
	t.Helper()
	status, body, err := g.do(t.Context(), http.MethodGet, "/api/agent/inbox?protocol=genesis", nil, "Authorization", "Bearer "+g.sessions["analyst"])
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var out struct{ Messages []object }
	require.NoError(t, json.Unmarshal(body, &out))
	return out.Messages
}

// assigned submits a task and returns the REQUEST that analyst gets.
func (g *genesisServer) assigned(t *testing.T, m object) (status int, answer, got object) {
	t.Helper()
	status, answer = g.send(t, m)
	require.Equal(t, http.StatusAccepted, status, "%v", answer)
	id := answer["payload"].(object)["taskId"]
	eventually(t, func() bool {
		for _, m := range g.inbox(t) {
			if m["correlationId"] == id && m["type"] == "REQUEST" {
				got = m
			}
		}
		return got != nil
	}, "the request is delivered")
	return status, answer, got
}

// answer returns a message of analyst about a REQUEST.
func (g *genesisServer) answer(kind string, to, members object) object {
	members = maps.Clone(members)
	members["correlationId"] = to["correlationId"]
	return g.message(kind, "analyst", "nova", members)
}

var varying = regexp.MustCompile(`wf_\w+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|"(timestamp|processingTime|timeout|total_time_ms|duration_ms)": [\d.]+|"traceparent": "[^"]+"|"(signature|signatureJcs|publicKey|token)": "[^"]+"`)

// record adds a message and its answer to the transcript. What differs between two runs is replaced.
func (g *genesisServer) record(t *testing.T, name string, request object, status int, answer object) {
	t.Helper()
	text := fmt.Sprintf("%s\n-> %d\n", indented(t, request), status)
	if answer != nil {
		text += indented(t, answer) + "\n"
	}
	text = varying.ReplaceAllStringFunc(text, func(found string) string {
		if name, _, ok := strings.Cut(found, `": `); ok {
			return name + `": "…"`
		}
		return "…"
	})
	g.log.Files = append(g.log.Files, txtar.File{Name: name, Data: []byte(text)})
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

func indented(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(t, enc.Encode(v))
	return strings.TrimSpace(out.String())
}

// requireGolden compares a transcript with its file; with -update it writes the file.
func (g *genesisServer) requireGolden(t *testing.T, file string) {
	t.Helper()
	if *updateCosts {
		require.NoError(t, os.WriteFile(file, txtar.Format(&g.log), 0o600))
	}
	stored, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(stored), string(txtar.Format(&g.log)))
}

// TestGenesisTranscripts sends each kind of message with each of its states, guarantees and types, and each standard intent, and
// compares messages and answers with testdata/genesis/messages.txtar.
func TestGenesisTranscripts(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		g := openGenesis(t, database)
		exchange := func(name string, m object, headers ...string) object {
			status, answer := g.send(t, m, headers...)
			g.record(t, name, m, status, answer)
			return answer
		}
		// The statuses of a RESPONSE and the types of an ERROR, each for a task of one of the six intents that need an agent.
		for i, c := range []struct {
			kind, name, intent string
			members            object
		}{
			{"RESPONSE", "SUCCESS", "query_data", object{"status": "SUCCESS", "data": object{"mean": 4.5}, "confidence": 0.9, "sources": []string{"warehouse"}, "processingTime": 12.5, "usage": object{"tokens": 7, "model": "m"}}},
			{"RESPONSE", "FAILURE", "analyze_data", object{"status": "FAILURE", "error": object{"code": "NO_DATA", "message": "the table is empty", "details": object{"table": "sales"}, "retryable": false, "stack": "at x"}}},
			{"RESPONSE", "PARTIAL", "transform_data", object{"status": "PARTIAL", "data": object{"part": 1}}},
			{"ERROR", "AGENT_ERROR", "store_data", object{"errorType": "AGENT_ERROR", "errorCode": "BROKEN", "message": "it does not work"}},
			{"ERROR", "ROUTING_ERROR", "retrieve_data", object{"errorType": "ROUTING_ERROR", "errorCode": "UNSUPPORTED_INTENT", "message": "not here"}},
			{"ERROR", "TIMEOUT", "send_notification", object{"errorType": "TIMEOUT", "errorCode": "SLOW", "message": "too slow", "retryAfter": 10, "fallbackSuggestion": "boss"}},
			{"ERROR", "VALIDATION_ERROR", "query_data", object{"errorType": "VALIDATION_ERROR", "errorCode": "BAD", "message": "it cannot be read", "details": object{"member": "payload"}}},
		} {
			m := g.request("boss", "broadcast", c.intent, object{"rows": i})
			m["options"] = object{"requiresAck": true, "requiresResponse": true, "allowPartialResponse": true, "maxResponseTime": 60000, "stream": true}
			status, answer, got := g.assigned(t, m)
			g.record(t, c.intent+" for "+c.name, m, status, answer)
			reply := g.answer(c.kind, got, c.members)
			if c.kind == "RESPONSE" {
				reply["requestId"] = got["id"]
			} else {
				reply["originalMessageId"] = got["id"]
			}
			exchange(c.kind+" "+c.name, reply)
			switch c.name {
			case "TIMEOUT", "VALIDATION_ERROR": // comet tries again
				g.send(t, g.request("boss", "nova", "cancel_task", object{"requestId": m["id"]}))
			case "PARTIAL":
				g.send(t, g.answer("RESPONSE", got, object{"requestId": got["id"], "status": "SUCCESS"}))
			default:
				status, answer := g.post(t, m, "Prefer", "wait=30")
				g.record(t, "the end after "+c.name, m, status, answer)
			}
		}
		malformed := g.request("boss", "broadcast", "query_data", nil)
		g.sign(t, malformed)
		malformed["signature"] = "AAAA"
		status, answer := g.post(t, malformed)
		g.record(t, "a malformed signature without a token", malformed, status, answer)
		exchange("an error with SUCCESS", g.message("RESPONSE", "analyst", "nova", object{
			"correlationId": "order-7", "requestId": uuid.NewString(), "status": "SUCCESS", "error": object{"code": "X", "message": "x", "retryable": false},
		}))
		exchange("to an unknown agent", g.request("ops", "analist", "query_data", nil))
		for _, guarantee := range []string{"at-most-once", "at-least-once", "exactly-once"} {
			m := g.message("EVENT", "boss", "broadcast", object{
				"eventType": "order.paid", "eventName": "an order was paid", "payload": object{"order": 81},
				"metadata": object{"schemaVersion": "1", "contentType": "application/json"}, "deliveryGuarantee": guarantee,
			})
			if guarantee == "exactly-once" {
				m["deduplicationId"] = "order-81"
			}
			answer := exchange("EVENT "+guarantee, m)
			require.Equal(t, "accepted", answer["payload"].(object)["stage"])
		}
		// The intents that comet fulfils. An administrator sends them where an agent may not.
		slow := g.request("boss", "broadcast", "query_data", nil)
		_, _, _ = g.assigned(t, slow)
		workflow := object{"workflow": object{"tasks": []any{object{"id": "t1", "type": "code_execution", "code": "1+1"}}}}
		for _, c := range []struct {
			name string
			m    object
		}{
			{"execute_workflow", g.request("ops", "nova", "execute_workflow", workflow)},
			{"execute_workflow, not permitted", g.request("boss", "nova", "execute_workflow", workflow)},
			{"monitor_status", g.request("boss", "nova", "monitor_status", object{"requestId": slow["id"]})},
			{"monitor_status, of nothing", g.request("boss", "nova", "monitor_status", nil)},
			{"schedule_task", g.request("boss", "nova", "schedule_task", object{"intent": "query_data", "payload": object{"rows": 1}, "delayMs": 86400000})},
			{"schedule_task, without a time", g.request("boss", "nova", "schedule_task", object{"intent": "query_data"})},
			{"cancel_task", g.request("boss", "nova", "cancel_task", object{"requestId": slow["id"], "reason": "no longer needed"})},
			{"cancel_task, unknown", g.request("boss", "nova", "cancel_task", object{"requestId": uuid.NewString()})},
			{"get_capability", g.request("boss", "nova", "get_capability", nil)},
			{"register_agent", g.request("ops", "nova", "register_agent", object{"id": "third", "name": "Third", "capabilities": []string{"custom:dig"}, "subscriptions": []string{"order.*"}})},
			{"register_agent, again", g.request("ops", "nova", "register_agent", object{"id": "third"})},
			{"unregister_agent", g.request("ops", "nova", "unregister_agent", object{"agentId": "third"})},
			{"unregister_agent, unknown", g.request("ops", "nova", "unregister_agent", object{"agentId": "unknown"})},
			{"health_check", g.request("boss", "nova", "health_check", object{"agentId": "boss"})},
			{"health_check, not permitted", g.request("boss", "nova", "health_check", object{"agentId": "analyst"})},
			{"authenticate", g.request("boss", "nova", "authenticate", nil)},
			{"authenticate, of no agent", g.request("ops", "nova", "authenticate", nil)},
			{"authorize", g.request("boss", "nova", "authorize", object{"action": "messages:send"})},
			{"authorize, denied", g.request("boss", "nova", "authorize", object{"tool": "agentcards:search_tools"})},
		} {
			wait := "wait=0"
			if c.name == "execute_workflow" {
				wait = "wait=30"
			}
			exchange(c.name, c.m, "Prefer", wait)
		}
		g.requireGolden(t, "testdata/genesis/messages.txtar")
	})
}

// TestGenesisFields sends each kind of message with each of its members missing, null and of another type, and compares the answers
// with testdata/genesis/fields.txtar.
func TestGenesisFields(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		g := openGenesis(t, database)
		_, _, got := g.assigned(t, g.request("boss", "broadcast", "query_data", nil))
		status, answer := g.send(t, g.answer("RESPONSE", got, object{"requestId": got["id"], "status": "SUCCESS"})) // later ones change nothing
		require.Equal(t, http.StatusAccepted, status, "%v", answer)
		request := g.request("boss", "broadcast", "analyze_data", object{"rows": 3})
		maps.Copy(request, object{
			"correlationId": "order-7", "timeout": 60000, "ttl": 60000, "context": object{"maxTokens": 100},
			"entities": []any{object{"type": "agent_name", "value": "analyst", "confidence": 0.99, "startOffset": 1, "endOffset": 8, "metadata": object{"a": 1}}},
			"options":  object{"requiresAck": true, "requiresResponse": true, "allowPartialResponse": true, "maxResponseTime": 60000, "stream": false},
		})
		response := g.answer("RESPONSE", got, object{
			"requestId": got["id"], "status": "FAILURE", "data": object{"rows": 0}, "confidence": 0.5, "sources": []any{"warehouse"}, "processingTime": 12.5, "sequence": 1,
			"error": object{"code": "NO_DATA", "message": "the table is empty", "details": object{"table": "sales"}, "stack": "at x", "retryable": false}, "usage": object{"tokens": 7, "model": "m"},
		})
		event := g.message("EVENT", "boss", "broadcast", object{
			"eventType": "order.paid", "eventName": "an order was paid", "payload": object{"order": 81}, "deliveryGuarantee": "exactly-once", "deduplicationId": "order-81",
			"metadata": object{"schemaVersion": "1", "contentType": "application/json"},
		})
		failure := g.answer("ERROR", got, object{
			"originalMessageId": got["id"], "errorType": "AGENT_ERROR", "errorCode": "BROKEN", "message": "it does not work", "details": object{"a": 1}, "retryAfter": 10, "fallbackSuggestion": "boss",
		})
		for _, m := range []object{request, response, event, failure} {
			var text strings.Builder
			fmt.Fprintf(&text, "as it is: %s\n", g.attempt(t, m, "", nil))
			for _, path := range pointersOf(m, "") {
				for _, c := range []struct {
					name  string
					value any
				}{{"missing", nil}, {"null", json.RawMessage("null")}, {"wrong", wrongFor(path)}} {
					fmt.Fprintf(&text, "%s %s: %s\n", path, c.name, g.attempt(t, m, path, c.value))
				}
			}
			for _, name := range []string{"/signature", "/signatureJcs", "/publicKey"} {
				fmt.Fprintf(&text, "%s missing: %s\n%s null: %s\n%s wrong: %s\n", name, g.attempt(t, m, name, nil), name, g.attempt(t, m, name, json.RawMessage("null")), name, g.attempt(t, m, name, "AAAA"))
			}
			g.log.Files = append(g.log.Files, txtar.File{Name: m["type"].(string), Data: []byte(text.String())})
		}
		g.requireGolden(t, "testdata/genesis/fields.txtar")
	})
}

// attempt sends a message with another value at a pointer, without the member for nil, and describes the answer.
func (g *genesisServer) attempt(t *testing.T, m object, path string, value any) string {
	t.Helper()
	var changed object
	dec := json.NewDecoder(bytes.NewReader(encoded(t, m)))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&changed))
	changed["id"], changed["timestamp"] = uuid.NewString(), time.Now().UnixMicro()*1000
	afterSigning := strings.HasPrefix(path, "/signature") || path == "/publicKey"
	if afterSigning {
		g.sign(t, changed)
	}
	if path != "" {
		replaceAt(changed, strings.Split(path[1:], "/"), value)
	}
	if !afterSigning {
		g.sign(t, changed)
	}
	status, body, err := g.do(t.Context(), http.MethodPost, "/api/genesis/messages", changed, "Authorization", "Bearer "+g.sessions[m["from"].(string)])
	require.NoError(t, err)
	var answer struct{ Type, ErrorType, ErrorCode, Message string }
	_ = json.Unmarshal(body, &answer) // it may be empty
	return varying.ReplaceAllString(strings.TrimSpace(strings.Join([]string{strconv.Itoa(status), answer.Type, answer.ErrorType, answer.ErrorCode, answer.Message}, " ")), "…")
}

// pointersOf returns the JSON pointers of the members that the protocol defines.
func pointersOf(m object, path string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "/" + name
		if strings.HasPrefix(name, "signature") || name == "publicKey" {
			continue
		}
		all = append(all, here)
		switch value := m[name].(type) {
		case object:
			if slices.Contains([]string{"error", "options", "usage"}, name) || name == "metadata" && path == "" {
				all = append(all, pointersOf(value, here)...)
			}
		case []any:
			all = append(all, here+"/0")
			if first, ok := value[0].(object); ok {
				all = append(all, pointersOf(first, here+"/0")...)
			}
		}
	}
	return all
}

// wrongFor returns a value that no member may have. Any value is valid in a payload and as data.
func wrongFor(path string) any {
	if name := path[strings.LastIndexByte(path, '/')+1:]; slices.Contains([]string{"entities", "sources", "metadata", "context", "options", "error", "usage", "details", "0"}, name) {
		return 7
	}
	return []any{}
}

// replaceAt replaces the value at a path, or removes it for nil.
func replaceAt(in any, path []string, value any) {
	switch v := in.(type) {
	case object:
		switch {
		case len(path) > 1:
			if list, ok := v[path[0]].([]any); ok && len(path) == 2 && value == nil {
				v[path[0]] = list[1:]
				return
			}
			replaceAt(v[path[0]], path[1:], value)
		case value == nil:
			delete(v, path[0])
		default:
			v[path[0]] = value
		}
	case []any:
		if len(path) == 1 {
			v[0] = value
			return
		}
		replaceAt(v[0], path[1:], value)
	}
}
