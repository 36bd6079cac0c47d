package app

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"comet/api"
	"comet/internal/a2a"
	"comet/internal/bus"
	"comet/internal/httpkit"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/protocol/genesis"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/pubsub"
	"comet/internal/transport"
	"comet/models"
)

// minOfflineAfter is the shortest time after which a silent agent is offline: three heartbeats of
// an agent that uses the default interval.
const minOfflineAfter = 45 * time.Second

// classes returns the policies of the protocols' task classes.
func classes() map[string]orchestrator.Policy {
	return map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy(), genesis.Class: genesis.Policy(), a2a.Class: a2a.Policy()}
}

// newTransport returns the server of the agents' connections, with the envelope protocol, PROTOCOL_V5 and the Genesis
// protocol.
func (a *App) newTransport(work *orchestrator.Orchestrator, publications *pubsub.PubSub, natsBus *bus.Bus, v5 *v5.Protocol, signed *genesis.Protocol, limits *httpkit.Limits) *transport.Server {
	return transport.New(transport.Core{
		Work: work, PubSub: publications, Auth: a.tokens, Keys: a.keys, Bus: natsBus,
		Protocols: []protocol.Protocol{
			envelope.New(work, &envelope.Options{Clock: a.opts.Clock, Logger: a.log}),
			v5,
			signed,
		},
	}, &transport.Options{
		Heartbeat:      a.cfg.Transport.Heartbeat,
		Redeliver:      a.cfg.Transport.RedeliverAfter,
		MaxConnections: a.cfg.Transport.MaxConnections,
		Limits:         limits,
		Guard:          netguard.New(a.cfg.Webhooks.Networks()),
		HTTPSOnly:      a.cfg.Webhooks.HTTPSOnly,
		SingleProcess:  a.store.Database() == "sqlite",
		UserAgent:      "comet/" + cmp.Or(a.opts.Build.Version, "unknown"),
		Clock:          a.opts.Clock,
		Registerer:     a.metrics.Registerer(),
		Logger:         a.log,
	})
}

// v5ForAPI returns the part of PROTOCOL_V5 that the API reads.
func (a *App) v5ForAPI(protocol *v5.Protocol, messages *messagelog.Log) api.MessageProtocol {
	return api.MessageProtocol{
		AgentNumber: func(ctx context.Context, id string) (int64, error) { return shortid.AgentNumber(ctx, a.store, id) },
		AgentNumbers: func(ctx context.Context, ids []string) (map[string]int64, error) {
			return shortid.AgentNumbers(ctx, a.store, ids)
		},
		AgentID:      func(ctx context.Context, number int64) (string, error) { return shortid.AgentID(ctx, a.store, number) },
		FormatEvent:  protocol.Event,
		TaskMessages: taskMessages(messages),
	}
}

// taskMessages returns the reader of the message log that the API calls.
func taskMessages(log *messagelog.Log) func(context.Context, models.Task, string, int) ([]api.TaskMessage, error) {
	return func(ctx context.Context, t models.Task, after string, limit int) ([]api.TaskMessage, error) {
		messages, err := log.ByTask(ctx, t, after, limit)
		out := make([]api.TaskMessage, len(messages))
		for i, m := range messages {
			out[i] = api.TaskMessage{
				ID: m.ID, At: m.At, Ctx: shortid.ContextName(m.Context), TID: "T" + strconv.Itoa(m.Task), Number: m.Number, From: m.From, To: m.To,
				Type: m.Type, State: orNull(m.State), Err: orNull(m.Code), Depth: m.Depth, Data: m.Data, PID: orNull(m.Parent), ParentID: orNull(m.ParentID),
			}
		}
		return out, err
	}
}

// orNull returns a pointer to v, nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
