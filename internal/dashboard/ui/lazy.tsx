// Views that are loaded when they are first opened, so that the first load is small.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "./api";
import { Page, Skeleton } from "./components";
import { ProblemNotice } from "./problem";

/** lazy returns a component that load loads. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const [problem, setProblem] = useState<Problem>();
    const [, redraw] = useState(0);
    useEffect(() => {
      if (loaded) return;
      let timer: ReturnType<typeof setTimeout>;
      const read = () =>
        load().then(
          (component) => ((loaded = component), redraw((n) => n + 1)),
          () => {
            setProblem(new Problem(0, "This view cannot be loaded. The page keeps retrying. If comet was updated, reload the page."));
            timer = setTimeout(read, 2000);
          },
        );
      void read();
      return () => clearTimeout(timer);
    }, []);
    const View = loaded;
    if (View) return <View {...props} />;
    return (
      <Page name="loading" title="Loading" ready={false}>
        {problem ? <ProblemNotice problem={problem} retry={() => location.reload()} /> : <Skeleton />}
      </Page>
    );
  };
}
