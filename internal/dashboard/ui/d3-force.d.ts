// The parts of d3-force that the dashboard uses.
declare module "d3-force" {
  export type SimulationNode = { index?: number; x: number; y: number; vx?: number; vy?: number };
  type LinkOf<N> = { source: string | N; target: string | N };

  export interface Simulation<N extends SimulationNode> {
    stop(): this;
    tick(iterations?: number): this;
    alpha(): number;
    alpha(value: number): this;
    alphaMin(): number;
    alphaDecay(value: number): this;
    velocityDecay(value: number): this;
    force(name: string, force: unknown): this;
  }
  export interface LinkForce<N extends SimulationNode, L extends LinkOf<N>> {
    id(of: (node: N) => string): this;
    distance(of: number | ((link: L) => number)): this;
    strength(of: number | ((link: L) => number)): this;
    iterations(n: number): this;
  }
  export interface ManyBodyForce<N extends SimulationNode> {
    strength(of: number | ((node: N) => number)): this;
    theta(value: number): this;
    distanceMax(value: number): this;
  }
  export interface CollideForce<N extends SimulationNode> {
    radius(of: (node: N) => number): this;
    iterations(n: number): this;
  }
  export interface PositionForce {
    strength(value: number): this;
  }
  export function forceSimulation<N extends SimulationNode>(nodes: N[]): Simulation<N>;
  export function forceLink<N extends SimulationNode, L extends LinkOf<N>>(links: L[]): LinkForce<N, L>;
  export function forceManyBody<N extends SimulationNode>(): ManyBodyForce<N>;
  export function forceCollide<N extends SimulationNode>(): CollideForce<N>;
  export function forceX(x: number): PositionForce;
  export function forceY(y: number): PositionForce;
}
