import{a,b,c,d}from"./chunk-NY2KVSE5.js";import"./chunk-V4AOMWAE.js";import"./chunk-IFYDTCHN.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
