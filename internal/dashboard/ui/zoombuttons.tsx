// The buttons that change the size of a graph.
import { Icon } from "./icons";

/** ZoomButtons calls zoom with a factor, and fit to show the whole graph. */
export function ZoomButtons({ zoom, fit }: { zoom: (factor: number) => void; fit: () => void }) {
  return (
    <div class="zoom">
      <button aria-label="Zoom in" onClick={() => zoom(1.4)}>
        <Icon name="plus" />
      </button>
      <button aria-label="Zoom out" onClick={() => zoom(1 / 1.4)}>
        <span aria-hidden="true">−</span>
      </button>
      <button onClick={fit}>Fit</button>
    </div>
  );
}
