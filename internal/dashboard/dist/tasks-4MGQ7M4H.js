import{a,b,c,d}from"./chunk-NWTRS7WS.js";import"./chunk-RBA4C664.js";import"./chunk-XXE5IC2O.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
