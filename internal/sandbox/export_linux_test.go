package sandbox

import "time"

// ConfineChild confines this process as a child that received a run.
func ConfineChild() error {
	base, err := confine()
	if err != nil {
		return err
	}
	return setLimits(base, 64, time.Minute)
}
