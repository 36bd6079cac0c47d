package sandbox

import "time"

// kind is one of the programs that children are. QuickJS reads code and runs it in one
// child; what Deno runs was read by a child of that kind before, whose compiler is bounded.
type kind struct {
	// command starts a child that will run code with so much memory.
	command func(memoryMB int) []string
	env     []string
	warm    chan *process // children that have booted, handed over without a buffer
	// sized is a kind whose memory is fixed by its command: a ready child has the default.
	sized bool
	// confined is a kind that limits itself. The limits of others are set from outside.
	confined bool
	// grace is how much longer than its time a child may take to say where it was.
	grace time.Duration
	// frame bounds what a child says at once, in bytes.
	frame int
}

// ownKind is this program as a child, which is QuickJS and the compiler.
func ownKind(o *Options) *kind {
	return &kind{
		command: func(int) []string { return o.Command },
		env:     []string{"TZ=UTC"}, // nothing of ours, and no place in the world
		warm:    make(chan *process), confined: true, grace: grace, frame: maxFromChild(o),
	}
}

// maxFromChild bounds the frames of a child.
func maxFromChild(o *Options) int {
	most := max(o.MaxResult, 2*maxCompiled)
	if o.Deno != "" {
		most = max(most, 2*maxRead)
	}
	return most + 64<<10
}
