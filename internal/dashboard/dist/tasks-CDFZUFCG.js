import{a,b,c,d}from"./chunk-KAEZSDQD.js";import"./chunk-ICPV6B5J.js";import"./chunk-YU66U6VH.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
