// Package agent is for people who write agents in Go. An Agent holds a line to a comet
// server, takes the work that is sent to it, gives each piece to the function that was
// registered for its type, and reports progress, output and result. What a network does
// to a line stays in here: messages are kept until the server has acknowledged them and
// sent again on the next line, a request that comes twice runs once, and a function
// learns through its context that its work was taken back.
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
// The token is one that is bound to an agent: comet tokens create NAME --agent ID.
//
// Agents and clients of this package speak the envelope protocol.
//
// A Client is the other side: it asks for work and follows it.
package agent
