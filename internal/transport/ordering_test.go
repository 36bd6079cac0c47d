package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/protocol/envelope"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// TestOrderOfReports sends random messages about several tasks twice, over one connection: each
// after the reply to the one before, and all at once. The effects and the replies are the same.
func TestOrderOfReports(t *testing.T) {
	t.Parallel()
	runV5Transports(t, "one by one and at once", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		const tasks, messages = 5, 120
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		script := reportScript(rand.New(rand.NewPCG(seed, 1)), tasks, messages)
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), ";concurrency="+strconv.Itoa(2*tasks))
		var names [2]conversation
		for n := range 2 * tasks {
			f.submit(t, "ada")
			tid, session := c.nextOfType("R")
			names[n/tasks] = append(names[n/tasks], [2]string{tid, session})
		}
		var one []string
		for _, line := range script {
			c.sendLine(line(names[0]))
			one = append(one, c.barrier()...)
		}
		all := c.exchange(script, names[1], len(one))
		require.Empty(t, c.barrier())
		require.Equal(t, names[0].normalize(one), names[1].normalize(all))
		for n := range tasks {
			require.Equal(t, f.outcomeOf(t, names[0][n]), f.outcomeOf(t, names[1][n]), "task %d", n)
		}
	})
}

// conversation is the names of tasks: TID and CTX.
type conversation [][2]string

// scriptLine is a message about the tasks of a conversation.
type scriptLine func(c conversation) string

// exchange sends all lines at once and returns n replies.
func (c *v5Client) exchange(script []scriptLine, names conversation, n int) (replies []string) {
	c.t.Helper()
	sent := make(chan error, 1)
	go func() {
		for _, line := range script {
			if err := c.send(line(names)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range n {
		replies = append(replies, c.next())
	}
	require.NoError(c.t, <-sent)
	return replies
}

var contextNames = regexp.MustCompile(`\bS[1-9]\d*\b`)

// normalize replaces the names of sessions by their positions, and removes numbers of messages.
func (c conversation) normalize(lines []string) []string {
	positions := map[string]string{}
	for i, name := range c {
		positions[name[1]] = fmt.Sprint("S#", i)
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		_, line, _ = strings.Cut(line, "|")
		out[i] = contextNames.ReplaceAllStringFunc(line, func(name string) string {
			if position := positions[name]; position != "" {
				return position
			}
			return name
		})
	}
	return out
}

// reportScript returns n messages of a worker. Some are repeated, invalid or about no task; some
// are processed alone.
func reportScript(random *rand.Rand, tasks, n int) (script []scriptLine) {
	line := func(number, task int, kind, state, err, data string) scriptLine {
		return func(c conversation) string {
			return fmt.Sprintf("M%d|W1>O1|%s|%s|-|%s|%s|0|%s|-|%s", number, kind, c[task][0], state, err, c[task][1], data)
		}
	}
	for number := 10; len(script) < n; number++ {
		task := random.IntN(tasks)
		switch random.IntN(16) {
		case 0, 1:
			script = append(script, line(number, task, "A", "R", "-", "-"))
		case 2, 3, 4, 5:
			data := fmt.Sprintf("progress=%d%%;step=step_%d", random.IntN(101), random.IntN(4))
			script = append(script, line(number, task, "U", "R", "-", data))
		case 6, 7: // often with a piece missing
			script = append(script, line(number, task, "U", "R", "-", fmt.Sprintf("part=%d;text=%d", 1+random.IntN(4), number)))
		case 8:
			script = append(script, line(number, task, "Q", "-", "-", "ref="+[]string{"T1:state", "state"}[random.IntN(2)]))
		case 9:
			if len(script) > n/2 {
				script = append(script, line(number, task, "S", "D", "-", "n="+strconv.Itoa(number)))
			}
		case 10:
			if len(script) > n/2 {
				script = append(script, line(number, task, "E", "F", "E99", "desc=failed"))
			}
		case 11:
			if len(script) > 0 {
				script = append(script, script[random.IntN(len(script))])
			}
		case 12:
			script = append(script, line(number, task, "U", "R", "-", "progress=200%"))
		case 13:
			script = append(script, line(number, task, "S", "X", "-", "-"), func(conversation) string { return "nonsense" })
		case 14:
			script = append(script, func(c conversation) string { return "M9|W1>O1|A|T77|-|R|-|0|" + c[task][1] + "|-|-" })
		default:
			script = append(script, func(conversation) string { return heartbeatLine })
		}
	}
	return script
}

// outcomeOf returns what the reports of a task have changed.
func (f *v5Fixture) outcomeOf(t *testing.T, name [2]string) map[string]any {
	t.Helper()
	number, _ := strconv.Atoi(name[0][1:])
	n, _ := shortid.ContextNumber(name[1])
	id, err := shortid.NewCache(f.DB.Store).TaskID(t.Context(), shortid.ID{Context: n, Task: number})
	require.NoError(t, err)
	task, err := f.Task(t.Context(), id)
	require.NoError(t, err)
	return map[string]any{
		"state": task.State, "progress": task.Progress, "step": task.Step, "name": task.StepName, "bytes": task.OutputBytes, "error": task.Error,
		"code": task.ErrorCode, "attempt": task.Attempt, "log": f.outputOf(t, task, models.StreamLog), "result": f.outputOf(t, task, models.StreamResult),
	}
}

func (f *fixture) outputOf(t *testing.T, task models.Task, stream models.OutputStream) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, f.Output(t.Context(), task, stream, 0, func(o models.OutputChunk) error {
		b.Write(o.Data)
		return nil
	}))
	return b.String()
}

// TestOrderOfRequests sends many requests at once: each gets its own reply, in order, and on SQLite
// their tasks are in the order of the requests.
func TestOrderOfRequests(t *testing.T) {
	t.Parallel()
	runV5Transports(t, "at once", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		f.firstAgent(t, "ada")
		f.AddAgent(t, "holder", "infra", "custom:hold")
		_, err := f.Join(t.Context(), "holder", orchestrator.JoinRequest{Protocol: "notes", Transport: "none", Concurrency: orchestrator.MaxConcurrency})
		require.NoError(t, err)
		c := f.joinOver(t, via, f.token(t, "ada", models.ScopeMessagesSend).Secret, "")
		c.sendLine("M2|W1>O1|R|-|P1|N|-|0|-|-|call=hold;keep=1")
		_, base := c.nextOfType("A")
		var script []scriptLine
		var kinds []string
		add := func(kind, line string) {
			script, kinds = append(script, func(conversation) string { return line }), append(kinds, kind)
		}
		random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
		for n := range 150 {
			switch random.IntN(10) {
			case 0:
				add("which capability?", "M3|W1>O1|R|-|P1|N|-|0|-|-|query=without_call")
			case 1:
				add("E43", "M3|W1>O1|R|-|P1|N|-|0|"+base+"|-|call=hold;src=#REF:T1:raw")
			case 2:
				add("agents=W1", queryAgents)
			case 3:
				add("E10", "nonsense")
			case 4, 5:
				add("in session", fmt.Sprintf("M4|W1>O1|R|-|P1|N|-|0|%s|-|call=hold;n=%d", base, n))
			default:
				add("request", fmt.Sprintf("M5|W1>O1|R|-|P1|N|-|0|-|-|call=hold;n=%d", n))
			}
		}
		inSession, last := 1, int64(0)
		for n, reply := range c.exchange(script, nil, len(script)) {
			segments := strings.Split(reply, "|")
			number, _ := strconv.Atoi(segments[3][min(1, len(segments[3])):])
			session, _ := shortid.ContextNumber(segments[8])
			switch kinds[n] {
			case "in session":
				inSession++
				require.Equal(t, inSession, number, reply)
				require.Equal(t, base, segments[8], reply)
			case "request":
				if f.DB.Database() == "sqlite" {
					require.Greater(t, session, last, reply)
				}
				last = session
			default:
				require.Contains(t, reply, kinds[n])
				continue
			}
			require.Contains(t, reply, "|accepted;")
			id, err := shortid.NewCache(f.DB.Store).TaskID(t.Context(), shortid.ID{Context: session, Task: number})
			require.NoError(t, err)
			task, err := f.TaskWithInput(t.Context(), id)
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, n), string(task.Input.Parameters), reply)
		}
		require.Empty(t, c.barrier())
	})
}

// statusClient is a worker on a WebSocket that reports about one task in envelopes.
type statusClient struct {
	t    *testing.T
	conn *websocket.Conn
	task string
}

// runStatusCase runs one case for a worker with a task, on each kind of database.
func runStatusCase(t *testing.T, name string, fn func(t *testing.T, f *fixture, c *statusClient)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			w := startWork(t, db)
			f := openFixture(t, w, nil, func(c *transport.Core) { c.Protocols = append(c.Protocols, envelope.New(w.Orchestrator, nil)) })
			conn, _, err := websocket.Dial(t.Context(), f.url+"/api/agent/connect", &websocket.DialOptions{
				HTTPHeader: http.Header{"Authorization": {"Bearer " + f.agent(t, "ada")}}, Subprotocols: []string{envelope.Subprotocol},
			})
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.CloseNow() })
			c := &statusClient{t, conn, ""}
			require.Contains(t, c.next(), "hello")
			f.WaitForWorker(t, "ada", online)
			c.task = f.submit(t, "ada").ID
			require.Contains(t, c.next()["type"], "work_request")
			fn(t, f, c)
		})
	})
}

func (c *statusClient) next() (frame map[string]any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	_, text, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(text, &frame))
	return frame
}

func (c *statusClient) send(kind, id, payload string) error {
	return c.conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil,
		`{"protocol_version":"1.0","message_id":%q,"from_agent":"infra","to_agent":"orchestrator","timestamp":"2026-01-19T04:21:04Z","trace_id":%q,`+
			`"request_id":%q,"type":%q,"payload":{"task_id":%q,%s},"x_custom_fields":{}}`, id, uuid.NewString(), uuid.NewString(), kind, c.task, payload))
}

func (c *statusClient) sendStatus(id string, n int) error {
	return c.send("work_status", id, fmt.Sprintf(`"status":"running","progress_percent":%d,"step":{"number":1,"name":"dig","output":"%d\n"}`, n%101, n))
}

// TestOrderOfStatuses sends many work_status messages of one task at once.
func TestOrderOfStatuses(t *testing.T) {
	t.Parallel()
	const n = 250
	runStatusCase(t, "they take effect once, in order, whatever fails between them", func(t *testing.T, f *fixture, c *statusClient) {
		ids, log, sent := make([]string, n), new(bytes.Buffer), make(chan error, 1)
		result := uuid.NewString()
		for i := range ids {
			ids[i] = uuid.NewString()
			switch {
			case i%10 == 7: // repeated
				ids[i] = ids[i-3]
			case i%10 != 5: // that one is invalid
				fmt.Fprintln(log, i)
			}
		}
		go func() {
			var err error
			for i, id := range ids {
				if i%10 == 5 {
					err = c.send("work_status", id, `"status":"running","progress_percent":101`)
				} else {
					err = c.sendStatus(id, i)
				}
				if err != nil {
					break
				}
			}
			if err == nil {
				err = c.send("work_result", result, `"status":"success","exit_code":0,"output":"dug"`)
			}
			sent <- err
		}()
		for i, id := range slices.Concat(ids, []string{result}) {
			if i%10 == 5 && i < n {
				require.Equal(t, "error", c.next()["type"])
			}
			require.Equal(t, []any{id}, c.next()["ack"], i)
		}
		require.NoError(t, <-sent)
		task, err := f.Task(t.Context(), c.task)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		require.Equal(t, log.String(), f.outputOf(t, task, models.StreamLog))
		require.Equal(t, "dug", f.outputOf(t, task, models.StreamResult))
	})
	runStatusCase(t, "a connection that breaks leaves a prefix with everything acknowledged", func(t *testing.T, f *fixture, c *statusClient) {
		const acknowledged = 60
		go func() {
			for i := range n {
				if c.sendStatus(uuid.NewString(), i) != nil {
					return
				}
			}
		}()
		for range acknowledged {
			require.Contains(t, c.next(), "ack")
		}
		require.NoError(t, c.conn.CloseNow())
		f.WaitForWorker(t, "ada", offline) // after the messages in progress
		task, err := f.Task(t.Context(), c.task)
		require.NoError(t, err)
		lines := strings.Fields(f.outputOf(t, task, models.StreamLog))
		require.GreaterOrEqual(t, len(lines), acknowledged)
		for i, line := range lines {
			require.Equal(t, strconv.Itoa(i), line)
		}
	})
}

// TestOrderOfOneRequest posts many messages at once.
func TestOrderOfOneRequest(t *testing.T) {
	t.Parallel()
	runV5Case(t, "each line has its reply, in order", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.AddAgent(t, "holder", "infra", "custom:hold")
		_, err := f.Join(t.Context(), "holder", orchestrator.JoinRequest{Protocol: "notes", Transport: "none", Concurrency: orchestrator.MaxConcurrency})
		require.NoError(t, err)
		user := f.token(t, "", models.ScopeMessagesSend).Secret
		var body strings.Builder
		for n := range 300 {
			if n%7 == 3 {
				body.WriteString("nonsense\n")
			} else {
				fmt.Fprintf(&body, "M1|User>O1|R|-|P1|N|-|0|-|-|call=hold;n=%d\n", n)
			}
		}
		_, lines := f.post(t, user, body.String())
		require.Len(t, lines, 300)
		last := int64(0)
		for n, line := range lines {
			segments := strings.Split("M1|"+line, "|") // post has removed the number
			if n%7 == 3 {
				require.Equal(t, "E10", segments[6], line)
				continue
			}
			session, ok := shortid.ContextNumber(segments[8])
			require.True(t, ok, line)
			if f.DB.Database() == "sqlite" {
				require.Greater(t, session, last, line)
			}
			last = session
			id, err := shortid.NewCache(f.DB.Store).TaskID(t.Context(), shortid.ID{Context: session, Task: 1})
			require.NoError(t, err)
			task, err := f.TaskWithInput(t.Context(), id)
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, n), string(task.Input.Parameters), line)
		}
	})
}
