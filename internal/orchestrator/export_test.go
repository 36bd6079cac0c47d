package orchestrator

import "time"

// LastOutage returns the time from which on agents are expected to respond in time.
func (o *Orchestrator) LastOutage() time.Time { return time.UnixMicro(o.availableSince.Load()).UTC() }
