package tools

// HoldWorkers calls change, which changes the tools of a server, between two refreshes, and delays the changes of workers,
// which follow those of their agents, until release is called. tools returns the number of the server's tools.
func (svc *Service) HoldWorkers(change func(tools func() int), server string) (release func()) {
	svc.refreshing.Lock()
	defer svc.refreshing.Unlock()
	svc.upstreamAgents.mu.Lock()
	change(func() int { return len(svc.upstreams.Tools(server)) })
	return svc.upstreamAgents.mu.Unlock
}
