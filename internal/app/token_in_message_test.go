package app_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// secret is the prefix of every token in a message.
const secret = "open-sesame"

// harmless is the text of a custom field that must be stored.
const harmless = "harmless-field"

// carriers are custom fields with a token in all their spellings.
func carriers(token string) map[string]string {
	kept := `"other":"` + harmless + `"`
	return map[string]string{
		"first":                     `{"auth_token":"` + token + `",` + kept + `}`,
		"last, with spaces":         `{ ` + kept + ` , "auth_token" : "` + token + `" }`,
		"alone":                     `{"auth_token":"` + token + `"}`,
		"under an escaped name":     `{"auth\u005ftoken":"` + token + `",` + kept + `}`,
		"as a list":                 `{"auth_token":["` + token + `"],` + kept + `}`,
		"as an object":              `{"auth_token":{"is":"` + token + `"},` + kept + `}`,
		"twice":                     `{"auth_token":"` + token + `","auth_token":"` + token + `"}`,
		"beside half a character":   `{"auth_token":"` + token + `","odd":"\ud800"}`,
		"beside what is no UTF-8":   `{"auth_token":"` + token + "\",\"odd\":\"\xff\"}",
		"in two sets of fields":     `{"auth_token":"` + token + `"},"x_custom_fields":{"auth_token":"` + token + `"}`,
		"in fields that do not end": `{"auth_token":"` + token + `"`,
	}
}

// sealed returns a message with the given custom fields.
func sealed(t *testing.T, w envelopeFrame, custom string) (message string) {
	t.Helper()
	raw, err := json.Marshal(w)
	require.NoError(t, err)
	return strings.TrimSuffix(string(raw), "}") + `,"x_custom_fields":` + custom + "}"
}

// post sends a message over HTTP unchanged.
func (c *client) post(t *testing.T, message string) (status int, body string) {
	t.Helper()
	resp := c.Do(t, http.MethodPost, "/api/agent/message", message)
	return resp.Status, string(resp.Body)
}

// readUntilAck returns everything the connection receives until a message is acknowledged.
func (l *agentSocket) readUntilAck(messageID string) (all string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	for {
		_, raw, err := l.conn.Read(ctx)
		require.NoError(l.t, err)
		all += string(raw) + "\n"
		var w envelopeFrame
		require.NoError(l.t, json.Unmarshal(raw, &w))
		if len(w.Ack) == 1 && w.Ack[0] == messageID {
			return all
		}
	}
}

// sent sends a message unchanged and returns everything received until its acknowledgement.
func (l *agentSocket) sent(message, messageID string) string {
	l.t.Helper()
	require.NoError(l.t, l.conn.Write(l.t.Context(), websocket.MessageText, []byte(message)))
	return l.readUntilAck(messageID)
}

// TestTokenInMessageIsNotStored (Chiffon §Authentication, “message field”): a token in a message
// that does not need it is in no row, file, log, response or message to others.
func TestTokenInMessageIsNotStored(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, log := configured(t, name), &output{}
			cfg.HTTP.MaxAuthFailures = 1000
			logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			a, err := app.New(t.Context(), cfg, &app.Options{Logger: logger})
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			c := newClient(t, a.URL(), adminToken(t, cfg.Data))
			own := registerAgent(t, c, "digger")
			s := &smuggler{t: t, c: c, agent: newClient(t, a.URL(), own), line: dialEnvelope(t, a.URL(), own)}
			for what, custom := range carriers(secret + "-1") {
				s.work(what, custom)
				s.refused(custom)
			}
			s.work("which is its own", `{"auth_token":"`+own+`"}`)
			require.Equal(t, 7, s.done, "valid messages are accepted")
			require.NoError(t, s.line.conn.Close(websocket.StatusNormalClosure, ""))
			require.NoError(t, a.Stop(t.Context()))

			kept, files := rows(t, cfg), contents(t, cfg.Data)
			require.Contains(t, kept, harmless, "other values of the fields are stored")
			require.Contains(t, log.String(), "a message was refused", "the rejection is logged")
			for _, token := range []string{secret, own} {
				for place, text := range map[string]string{"a row": kept, "a file": files, "the log": log.String(), "what was answered": s.told.String()} {
					if at := strings.Index(text, token); at >= 0 {
						t.Errorf("the token is in %s: %q", place, text[max(0, at-200):min(len(text), at+50)])
					}
				}
			}
		})
	}
}

// smuggler sends tokens in every kind of message and records everything it receives.
type smuggler struct {
	t        *testing.T
	c, agent *client
	line     *agentSocket
	told     strings.Builder
	done     int // completed tasks
}

// overHTTP sends a message and reports whether it was accepted.
func (s *smuggler) overHTTP(who *client, message string) bool {
	s.t.Helper()
	status, body := who.post(s.t, message)
	require.Less(s.t, status, http.StatusInternalServerError, "%s", body)
	s.told.WriteString(body)
	return status < http.StatusBadRequest
}

// overConnection sends a message of the agent, which may be rejected.
func (s *smuggler) overConnection(w envelopeFrame, custom string) {
	s.t.Helper()
	s.told.WriteString(s.line.sent(sealed(s.t, w, custom), w.MessageID))
}

// work submits, reports and completes a task with messages that contain a token. A message that
// breaks a rule is rejected, and the task continues without it.
func (s *smuggler) work(what, custom string) {
	s.t.Helper()
	order := newEnvelope("orchestrator", "infra", "work_request", map[string]any{"task_id": uuid.NewString(), "work_type": "dig", "parameters": map[string]any{}})
	taken := s.overHTTP(s.c, sealed(s.t, order, custom))
	if !taken {
		require.True(s.t, s.overHTTP(s.c, sealed(s.t, order, "{}")), what)
	}
	_, raw, err := s.line.conn.Read(s.t.Context())
	require.NoError(s.t, err)
	require.Contains(s.t, string(raw), "work_request")
	s.told.Write(raw)

	task := order.Payload["task_id"]
	status := map[string]any{"task_id": task, "status": "running", "progress": 10, "output_chunk": "half"}
	s.overHTTP(s.agent, sealed(s.t, newEnvelope("infra", "orchestrator", "work_status", status), custom))
	s.overConnection(newEnvelope("infra", "orchestrator", "work_status", status), custom)
	s.overHTTP(s.agent, sealed(s.t, newEnvelope("infra", "orchestrator", "work_status", map[string]any{"agent_id": "digger", "status": "online"}), custom))
	s.overConnection(newEnvelope("infra", "orchestrator", "work_status", map[string]any{"agent_id": "digger", "status": "online"}), custom)
	result := newEnvelope("infra", "orchestrator", "work_result", map[string]any{
		"task_id": task, "status": "success", "exit_code": 0, "output": "a hole", "resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1},
	})
	s.overConnection(result, custom)
	if !taken {
		s.overConnection(result, "{}")
	}
	s.overHTTP(s.agent, sealed(s.t, result, custom)) // sent twice
	require.Equal(s.t, taken, s.overHTTP(s.c, sealed(s.t, order, custom)), "asked twice")
	if taken {
		s.done++
	}
	require.Equal(s.t, "done", get[struct{ State string }](s.t, s.c, fmt.Sprintf("/api/v1/tasks/%s", task)).State, what)
}

// refused sends messages that are also invalid.
func (s *smuggler) refused(custom string) {
	s.t.Helper()
	ask := func(kind string) envelopeFrame {
		return newEnvelope("orchestrator", "infra", "work_request", map[string]any{"task_id": uuid.NewString(), "work_type": kind, "parameters": map[string]any{}})
	}
	unauthenticated := newClient(s.t, s.c.URL, strings.Repeat("0", 64))
	for _, who := range []*client{s.c, s.agent, unauthenticated} {
		require.False(s.t, s.overHTTP(who, sealed(s.t, ask("fly"), custom)), "no agent has the capability, and the request is invalid")
	}
	odd := ask("dig")
	odd.Version = "9.0"
	require.False(s.t, s.overHTTP(s.c, sealed(s.t, odd, custom)))
	require.False(s.t, s.overHTTP(s.c, sealed(s.t, ask("dig"), custom)[1:]))
	s.overConnection(newEnvelope("infra", "orchestrator", "work_status", map[string]any{"agent_id": "nova", "status": "online"}), custom)
	s.overConnection(newEnvelope("infra", "orchestrator", "work_result", map[string]any{"task_id": uuid.NewString()}), custom)
	s.overConnection(newEnvelope("infra", "orchestrator", "gossip", map[string]any{}), custom)
}

// rows returns all rows of all tables as text.
func rows(t *testing.T, cfg config.Config) string {
	t.Helper()
	list := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if cfg.DatabaseURL != "" {
		list = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
	}
	db := opened(t, cfg)
	var out strings.Builder
	tables := scanned(t, db, list)
	require.Greater(t, len(tables), 20)
	for _, table := range tables {
		out.WriteString(strings.Join(scanned(t, db, `SELECT * FROM "`+table+`"`), "\n"))
	}
	return out.String()
}

// opened opens the database of a server.
func opened(t *testing.T, cfg config.Config) *sql.DB {
	t.Helper()
	driver, source := "sqlite", filepath.Join(cfg.Data, "comet.db")
	if cfg.DatabaseURL != "" {
		driver, source = "pgx", cfg.DatabaseURL
	}
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// scanned returns the rows of a query, each as tab-separated text.
func scanned(t *testing.T, db *sql.DB, query string) (lines []string) {
	t.Helper()
	found, err := db.QueryContext(context.Background(), query)
	require.NoError(t, err, query)
	defer func() { require.NoError(t, found.Close()) }()
	columns, err := found.Columns()
	require.NoError(t, err)
	for found.Next() {
		values, dest := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, found.Scan(dest...))
		var text []string
		for _, v := range values {
			text = append(text, string(v))
		}
		lines = append(lines, strings.Join(text, "\t"))
	}
	require.NoError(t, found.Err())
	return lines
}

// contents returns the contents of all files of a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		out.Write(text)
		return err
	}))
	return out.String()
}
