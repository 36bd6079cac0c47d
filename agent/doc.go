// Package agent is the Go SDK for agents and for clients that submit tasks. An Agent connects to
// a comet server, takes the work that is sent to it, runs the handler that is registered for its
// type, and reports progress, output and result. It hides the network: messages are kept until
// the server has acknowledged them and sent again on the next connection, a request that arrives
// twice runs once, and the context of a handler ends when its task is cancelled.
//
//	a, err := agent.New("http://127.0.0.1:8080", os.Getenv("COMET_TOKEN"), nil)
//	…
//	a.Handle("run_playbook", func(ctx context.Context, w *agent.Work) (agent.Result, error) {
//		var p struct{ Playbook string }
//		if err := w.Decode(&p); err != nil {
//			return agent.Result{}, err
//		}
//		w.Progress(40, "pulling images")
//		fmt.Fprintln(w, "this is output")
//		return agent.Result{Output: "deployed " + p.Playbook}, nil
//	})
//	err = a.Run(ctx)
//
// The token must be bound to an agent: comet tokens create NAME --agent ID.
//
// A Client submits tasks and follows them. Agents and clients speak the envelope protocol.
package agent
