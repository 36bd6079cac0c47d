import{a,b,c,d}from"./chunk-KOCIUH6Q.js";import"./chunk-VIYC53MI.js";import"./chunk-CLQTT6E4.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
